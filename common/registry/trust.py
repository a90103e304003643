"""The trust window: the time for which a daemon may believe that its session lives.

Pure. ZooKeeper can't notify a daemon that is cut off, so the daemon counts its own time: from the
last *sure contact*, the sending of a request that was answered. The server received it no earlier,
so it can't expire the session before a whole timeout has passed since.
"""

from __future__ import annotations

from datetime import timedelta

from common.registry.protocol import Standing

SUSPENDED_AFTER = 1 / 3
LOST_AFTER = 2 / 3


class TrustWindow:
    """The standing of one incarnation; LOST until `begin`, and for good once it was seen LOST.

    All times are readings of the monotonic clock, in seconds.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout_seconds = timeout.total_seconds()
        self._contact = 0.0
        self._present: float | None = None
        self._suspended_at: float | None = None
        self._begun = False
        self._over = False

    def begin(self, sent: float) -> None:
        """The incarnation exists: a request sent at `sent` made its znode."""
        self._begun = True
        self.contact(sent)
        self.see(sent)

    def negotiate(self, timeout: timedelta) -> None:
        """Take over the timeout that the server granted at the last connect."""
        self._timeout_seconds = timeout.total_seconds()

    def contact(self, sent: float) -> None:
        """A request that was sent at `sent` has been answered."""
        self._contact = max(self._contact, sent)
        # An answer to what was sent before the connection broke does not mend it.
        if self._suspended_at is not None and sent >= self._suspended_at:
            self._suspended_at = None

    def see(self, sent: float) -> None:
        """A request that was sent at `sent` has found the znode, not the session alone."""
        self._present = sent if self._present is None else max(self._present, sent)

    @property
    def present(self) -> float | None:
        """The last moment at which the znode surely stood; None before it was made."""
        return self._present

    def suspend(self, now: float) -> None:
        """The connection broke."""
        self._suspended_at = now

    def end(self) -> None:
        """Note that the session is over, or the znode gone, whatever the clock says."""
        self._over = True

    def standing(self, now: float) -> Standing:
        """Return the standing. LOST is final: others may have acted on it."""
        age = now - self._contact
        if self._begun and age >= LOST_AFTER * self._timeout_seconds:
            self._over = True
        if self._over or not self._begun:
            return Standing.LOST
        if self._suspended_at is not None or age >= SUSPENDED_AFTER * self._timeout_seconds:
            return Standing.SUSPENDED
        return Standing.TRUSTED

    def next_change(self, now: float) -> float | None:
        """Seconds until silence alone changes the standing; None if it can't any more."""
        standing = self.standing(now)
        if standing is Standing.LOST:
            return None
        share = SUSPENDED_AFTER if standing is Standing.TRUSTED else LOST_AFTER
        return max(0.0, self._contact + share * self._timeout_seconds - now)
