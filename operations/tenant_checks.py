"""Checks the account of a tenant when the tenant, or a definition that names it, is saved.

The check uses the accounts and the configuration of this computer. The decisive check is the
worker's, on its host, before each launch (X18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.config import Config
from common.store.connect import Connection
from common.store.people.tenants import tenants
from common.tenant_accounts import AccountRules, entry_of, is_code, rules_at_save
from operations.definition_files import DefinitionDocument, Mistake
from operations.errors import UsageError
from operations.findings import Finding, Severity


def check_account(config: Config, code: str, field: str) -> None:
    """Raise `UsageError` for `field` if tasks must not run as this account on this computer."""
    rules = rules_at_save(config)
    entry = entry_of(code)
    if rules is None or entry is None:
        return
    if reason := rules.unfit(entry):
        raise UsageError(field, f"tasks cannot run as account {code!r:.100}: {reason}")


def tenant_of(document: DefinitionDocument, inner: Mapping[str, Any]) -> int:
    """Return the id of the tenant to save; -1 for the tenant of the definition's creator."""
    has_own_tenant = "tenantCode" in inner or document.is_later
    tenant = inner.get("tenantId") if has_own_tenant else document.tenant_id
    return tenant if isinstance(tenant, int) else -1


def check_accounts(
    db: Connection,
    documents: Sequence[DefinitionDocument],
    numbered: Mapping[str, Mapping[str, Any]],
    rules: AccountRules | None,
    *,
    warnings: Mapping[str, list[Finding]],
) -> Iterator[Mistake]:
    """Yield a mistake for each definition with an unfit tenant.

    Adds to `warnings` the accounts that this computer lacks.
    """
    if rules is None:
        return
    for document in documents:
        tenant_id = tenant_of(document, numbered[document.name])
        for tenant in tenants(db, tenant_id=tenant_id) if tenant_id > 0 else ():
            finding = _finding(tenant.code, rules)
            if finding is not None and finding.is_mistake:
                yield Mistake(place=document.place, text=str(finding))
            elif finding is not None:
                warnings[document.name].append(finding)


def _finding(code: str, rules: AccountRules) -> Finding | None:
    entry = entry_of(code)
    reason = rules.unfit(entry) if entry is not None else None
    if not is_code(code):
        reason = "it is not the name of an account"
    if reason is not None:
        return Finding(
            severity=Severity.MISTAKE,
            key="tenantCode",
            problem=f"tasks cannot run as tenant {code!r:.100}: {reason}",
            cure="name another tenant",
        )
    if entry is None:
        return Finding(
            severity=Severity.WARNING,
            key="tenantCode",
            problem=f"this computer lacks the account {code!r:.100}, so it was not checked",
            cure="workers check theirs, and fail the tasks if it is missing or a system account",
        )
    return None
