"""Commands about people, projects and what belongs to no project, for tests of both ways to them."""

from __future__ import annotations

from typing import Final

REFUSED: Final = (
    *("user list", "user list -o json", "user disable admin", "user set admin --no-admin"),
    *("user disable nobody", "user enable admni", "user set admin", "user set nobody --admin"),
    *("user grant nobody --project default --role viewer", "user set admin --tenant nobody"),
    *("user grant admin --project defalt --role viewer", "user create a/b", "user create Admin"),
    *("user create x --tenant nobody", "user create database", "token list", "token list -o json"),
    *("token list --user nobody", "token create --user nobody --name x", "token revoke 99"),
    *("token create --user admin --name x --expires 366d", "token create --user admin --name"),
    *("token create --user admin --name x --project defalt", "project list", "project show defalt"),
    *("project show default", "project show default -o json", "project list -o json"),
    *("project edit nowhere --name x", "project edit default", "project delete default"),
    *("project create default", "tenant list", "tenant list -o json", "tenant delete nobody"),
    *("tenant create a;b", "tenant create x --queue a/b", "worker-group list", "pool list"),
    *("worker strategy", "worker strategy --history -o json", "worker set-strategy /nowhere"),
    *("worker disable nobody:1 --reason x", "worker lazy nobody", "worker enable no,body"),
    *("worker-group show nobody", "worker-group delete nobody", "worker-group create default"),
    *("environment list", "environment list -o json", "environment show nobody"),
    *("environment delete nobody", "environment create 12", "environment set nobody --name x"),
    *("pool show nobody", "pool create p --size 0", "pool resize nobody --size 2"),
    *(
        f"{kind} {verb} nobody{'' if verb == 'grants' else ' --project default'}"
        for kind in ("tenant", "datasource", "environment", "pool", "worker-group")
        for verb in ("grant", "revoke", "grants")
    ),
    *(
        "pool remove nobody",
        "grants",
        "alert list",
        "alert list -o json",
        "alert list --limit 1",
    ),
    *("alert list --status lost", "alert list --status sent --status failed"),
    *("audit list", "audit list -o json", "audit list --limit 2", "audit list --before 5"),
    *("audit list --user admin --outcome refused", "audit list --outcome lost"),
    *("audit list --action user --object-type user -o json", "audit list --object-id 99"),
)
"""Commands about people and what belongs to no project that change nothing."""
ADMINISTERED: Final = (
    *("user create u-{it} --tenant default", "user create u-{it}", "user create U-{it} -o json"),
    *("user create v-{it} --admin --password-stdin -o json", "user disable u-{it}"),
    *("user disable u-{it} -o json", "user enable u-{it}", "user set u-{it} --admin -o json"),
    *(
        "user set u-{it} --no-admin --tenant t-{it}",
        "tenant create t-{it} --queue q --description d",
    ),
    *("tenant create t-{it}", "user set u-{it} --tenant t-{it}", "tenant delete t-{it}"),
    *("user link u-{it} --subject s-{it} --issuer https://login.example.org", "user unlink u-{it}"),
    *("user link u-{it} --subject s-{it} --issuer https://i.example.org -o json",),
    *("user link v-{it} --subject s-{it} --issuer https://i.example.org", "user unlink v-{it}"),
    *("user link u-{it} --subject s-{it}", "user unlink u-{it} -o json"),
    *("user password u-{it} --password-stdin", "user password u-{it} --password-stdin -o json"),
    *("project create p-{it} --description d", "project create p-{it}", "project show p-{it}"),
    *("user grant u-{it} --project p-{it} --role author", "project show p-{it} -o json"),
    *(
        "user grant u-{it} --project p-{it} --role admin -o json",
        "project edit p-{it} --name q-{it}",
    ),
    *("project edit q-{it} --review", "project edit q-{it} --no-review"),
    *("project edit q-{it} --description e -o json", "token list --user u-{it}"),
    *("token create --user u-{it} --name x --project q-{it} --role viewer --expires 12h",),
    *("token create --user u-{it} --name y -o json", "token list --user u-{it} -o json"),
    *("project delete q-{it}", "worker-group create g-{it} --address 10.0.0.7 -o json"),
    *("worker-group create h-{it}", "worker-group create h-{it}", "worker-group show g-{it}"),
    *("worker-group delete h-{it}", "worker-group delete g-{it} -o json"),
    *("environment create e-{it} --description d", "environment create e-{it}"),
    *("environment create f-{it} --worker-group default -o json", "environment show f-{it}"),
    *("environment set e-{it} --name g-{it} -o json", "environment show g-{it} -o json"),
    *("environment set g-{it} --any-worker-group", "environment delete g-{it}"),
    *("environment delete f-{it} -o json",),
    *("pool create z-{it} --size 2 --description d", "pool create y-{it} --size 1 -o json"),
    *("pool create y-{it} --size 3", "pool show z-{it}", "pool show z-{it} -o json"),
    *("pool grant z-{it} --project default", "pool grants z-{it}"),
    *("pool revoke z-{it} --project default -o json", "pool revoke z-{it} --project default"),
    *("tenant create w-{it} --project default", "tenant grants w-{it}", "tenant delete w-{it}"),
    *("worker-group create k-{it} --project default", "worker-group grants k-{it} -o json"),
    *("worker-group delete k-{it}", "environment create j-{it} --project default -o json"),
    *("environment grants j-{it}", "environment delete j-{it}"),
    *("pool resize z-{it} --size 3", "pool resize y-{it} --size 4 -o json", "pool remove y-{it}"),
    *("pool remove z-{it} -o json",),
)
"""Commands about them that are carried out; `{it}` is another word at the database and over HTTP."""
