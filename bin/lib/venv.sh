# Shared by the scripts in bin/: finds Python and Java, and keeps the checkout's own `.venv`.
#
# Sourced, with `root` set to the checkout. Says in one sentence what is missing and how to get it.
# Touches nothing outside the checkout, and needs neither root nor more network than pip's index.
# shellcheck shell=sh disable=SC2154

orcaflow_fail() {
    printf '%s: %s\n' "$(basename -- "$0")" "$1" >&2
    exit "${2:-78}"
}

# Prints the first Python that will do.
orcaflow_python() {
    for candidate in "${ORCAFLOW_PYTHON:-python3}" python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
                command -v -- "$candidate"
                return 0
            fi
            orcaflow_fail "$candidate has no venv module; install it, for example with \`apt-get install python3-venv\`"
        fi
    done
    orcaflow_fail "Python 3.11 or later is missing; install it (for example \`apt-get install python3.11 python3.11-venv\`, or from https://www.python.org) and put it on the PATH, or name it in ORCAFLOW_PYTHON"
}

# Returns if there is a Java that Spark and ZooKeeper run on.
orcaflow_need_java() {
    cure='install Java 17 or 21 (for example `apt-get install openjdk-17-jre-headless`, or from https://adoptium.net) and put it on the PATH or name it in JAVA_HOME'
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v -- "$java" >/dev/null 2>&1 || orcaflow_fail "Java is missing: $cure"
    feature=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${feature:-0}" -ge 17 ] || orcaflow_fail "Java 17 or 21 is needed, and $java is ${feature:-unknown}: $cure"
}

# Prints the extra that tests in a browser need, if there is a browser, or if they are demanded.
orcaflow_browser() {
    for program in chromium chromium-browser google-chrome; do
        if [ "${ORCAFLOW_BROWSER-}" = required ] || command -v "$program" >/dev/null 2>&1; then
            echo browser
            return 0
        fi
    done
}

# orcaflow_need_disk MB: returns if so much is free where the checkout is.
orcaflow_need_disk() {
    free_kb=$(df -Pk -- "$root" | awk 'NR == 2 { print $4 }')
    [ "${free_kb:-0}" -ge $(($1 * 1024)) ] || orcaflow_fail "$((${free_kb:-0} / 1024)) MB are free at $root, and $1 MB are needed; make room, or move the checkout"
}

# orcaflow_venv [EXTRA ...]: returns when .venv holds Orcaflow as it is described now, with the extras.
#
# The stamp tells what was installed, from which description and in which folder, so that a second
# run costs nothing; it is written last, so that an interrupted installation is done again.
orcaflow_venv() {
    venv="$root/.venv"
    stamp="$venv/.orcaflow-installed"
    wanted=$(cat -- "$root/pyproject.toml" "$root/constraints.txt" | cksum)" $root"
    orcaflow_is_installed "$@" && return 0
    python=$(orcaflow_python) || exit $?
    orcaflow_need_disk 2500
    # Two scripts at once: the second waits, and finds it done. What is locked is any file that stays.
    exec 9<"$root/pyproject.toml"
    if command -v flock >/dev/null 2>&1; then
        flock 9
    fi
    if ! orcaflow_is_installed "$@"; then
        orcaflow_install "$python" "$@"
    fi
    exec 9<&-
}

orcaflow_is_installed() {
    [ -x "$venv/bin/orcaflow" ] && [ -f "$stamp" ] || return 1
    { IFS= read -r installed && IFS= read -r extras; } <"$stamp" || return 1
    [ "$installed" = "$wanted" ] || return 1
    for extra in "$@"; do
        case " $extras " in *" $extra "*) ;; *) return 1 ;; esac
    done
    # The Python it was made of may have been removed since.
    "$venv/bin/python" -c '' >/dev/null 2>&1
}

orcaflow_pip_version=26.3

orcaflow_pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

orcaflow_install() {
    made_of=$1
    shift
    all=
    if [ -f "$stamp" ] && { IFS= read -r _ && IFS= read -r all; } <"$stamp"; then
        :
    fi
    for extra in "$@"; do
        case " $all " in *" $extra "*) ;; *) all="${all:+$all }$extra" ;; esac
    done
    printf 'Installing Orcaflow into %s (the first time takes a few minutes) …\n' "$venv" >&2
    rm -f -- "$stamp"
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        "$made_of" -m venv --clear "$venv" || orcaflow_fail "$made_of could not make $venv"
    fi
    log="$venv/.orcaflow-install.log"
    # Python brings an old pip, which reads what the index sends, and setuptools, which nothing needs.
    if ! orcaflow_pip install "pip==$orcaflow_pip_version" >"$log" 2>&1 9<&- ||
        ! orcaflow_pip uninstall --yes setuptools >>"$log" 2>&1 9<&-; then
        tail -n 15 -- "$log" >&2
        orcaflow_fail "pip could not be replaced by pip $orcaflow_pip_version; the output is in $log"
    fi
    if ! orcaflow_pip install --progress-bar off \
        -c "$root/constraints.txt" -e "$root${all:+[$(printf '%s' "$all" | tr ' ' ',')]}" \
        >>"$log" 2>&1 9<&-; then
        tail -n 15 -- "$log" >&2
        orcaflow_fail "pip could not install Orcaflow; the whole story is in $log"
    fi
    printf '%s\n%s\n' "$wanted" "$all" >"$stamp"
}
