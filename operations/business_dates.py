"""The business date of a run in the zone of the run, for the page of one run."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from common.business_dates import business_date
from common.config import cluster_zone
from common.params import ParameterError
from common.zones import UnknownZoneError, zone_named

if TYPE_CHECKING:
    from common.config import Config


def business_date_of(moment: datetime, timezone_id: str | None, config: Config) -> date | None:
    """Return the business date of a run with this moment and zone; None for an unknown zone."""
    try:
        zone = cluster_zone(config) if timezone_id is None else zone_named(timezone_id)
        return business_date(moment, zone)
    except (UnknownZoneError, ParameterError):
        return None
