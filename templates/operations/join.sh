{% autoescape off %}#!/bin/sh
# Makes this machine a node of a cluster of {{ site }}.
#
#   curl -fsSL {{ site }}/join.sh | sh -s -- --token hlxj_… [OPTION…]
#
# Installs the agent into an environment of its own, from the site and a Python package index, and
# runs `helix-agent join {{ site }}` there with the options given. Run again it updates the agent.
#
#   HELIX_AGENT_ENV  the folder of the environment (default: /opt/helix-agent for root, else
#                    ~/.local/share/helix-agent)
#   PYTHON           the interpreter (default: the newest that fits)
#   --ca FILE is for a site whose certificate is of a private authority (curl needs --cacert FILE)
#   PIP_INDEX_URL and other variables of pip are respected.
set -eu

# Move the token from the options, which every user of the machine can read, to the environment.
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
    --token)
        export HELIX_JOIN_TOKEN="${1:-}"
        [ "$left" -eq 0 ] || shift
        left=$((left > 0 ? left - 1 : 0))
        ;;
    --token=*) export HELIX_JOIN_TOKEN="${word#--token=}" ;;
    *) set -- "$@" "$word" ;;
    esac
done
exec sh -s -- "$@" <<'END_OF_SCRIPT'
set -eu

site={{ site_quoted }}
source={{ source_quoted }}

fail() {
    echo "join.sh: $*" >&2
    exit 2
}

fits() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < {{ python }})' >/dev/null 2>&1
}

find_python() {
    for one in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if fits "$one"; then
            echo "$one"
            return
        fi
    done
}

make_environment() {
    python=$(find_python)
    if [ -n "$python" ]; then
        "$python" -m venv "$folder" || fail "$python cannot make a virtual environment in" \
            "$folder, see above; Debian and Ubuntu need: apt-get install python3-venv"
    elif command -v uv >/dev/null 2>&1; then
        uv venv --quiet --seed --python '>={{ python_text }}' "$folder" ||
            fail "uv cannot make a virtual environment in $folder, see above"
    else
        fail "there is no Python {{ python_text }} or newer on the PATH; install it, or uv," \
            "or name one: PYTHON=/path/to/python3"
    fi
}

# From the index alone, torch brings the CUDA libraries: several GB that no CPU needs.
install_torch_for_cpus() {
    if [ -z "${PIP_INDEX_URL:-}${PIP_EXTRA_INDEX_URL:-}${PIP_NO_INDEX:-}${PIP_CONFIG_FILE:-}" ] &&
        [ "$(uname -m)" = x86_64 ] &&
        ! command -v nvidia-smi >/dev/null 2>&1 && ! command -v rocm-smi >/dev/null 2>&1 &&
        ! "$pip" show --quiet torch >/dev/null 2>&1; then
        "$pip" install --quiet --retries 1 --timeout 10 '{{ torch }}' \
            --index-url https://download.pytorch.org/whl/cpu ||
            echo "join.sh: no torch for CPUs from pytorch.org; taking the index's" >&2
    fi
}

# Where `--ca FILE` among the options says that the site's certificate is of a private authority.
find_ca() {
    while [ $# -gt 0 ]; do
        case $1 in
        --ca) echo "${2:-}" ;;
        --ca=*) echo "${1#--ca=}" ;;
        esac
        shift
    done
}

main() {
    mask=$(umask)
    if [ "$(id -u)" = 0 ]; then
        folder=${HELIX_AGENT_ENV:-/opt/helix-agent}
        # With --service another user runs it, who can read neither root's home nor files of a
        # stricter umask.
        umask 022
        export UV_PYTHON_INSTALL_DIR="${UV_PYTHON_INSTALL_DIR:-$folder-python}"
    else
        folder=${HELIX_AGENT_ENV:-${XDG_DATA_HOME:-$HOME/.local/share}/helix-agent}
    fi
    pip=$folder/bin/pip
    [ -x "$pip" ] || make_environment
    echo "Installing the agent into $folder" >&2
    install_torch_for_cpus
    ca=$(find_ca "$@")
    # The site's version over whatever is there, then what it needs, from the package index.
    "$pip" install --quiet {{ build_requirements }} &&
        "$pip" install --quiet ${ca:+--cert "$ca"} --force-reinstall --no-deps \
            --no-build-isolation "helixweb @ $source" &&
        "$pip" install --quiet 'helixweb[agent]' ||
        fail "pip could not install the agent, see above"
    umask "$mask"
    exec "$folder/bin/helix-agent" join "$site" "$@"
}

main "$@"
END_OF_SCRIPT
{% endautoescape %}
