#!/bin/sh
# Checks this kit, makes a Python environment from its wheels alone, and carries out its steps.
#
#   ./run [STEP...] [--python PATH]     README.md explains the steps
#
# PYTHON names the Python of this program; --python the one that has the vendor's torch.
set -u
versions='$programs'
kit=$$(cd "$$(dirname "$$0")" && pwd) || exit 3

stop() {
    printf 'run: %s\n%s\n' "$$1" "$$2" >&2
    exit 3
}

sums() (
    cd "$$kit" && LC_ALL=C sha256sum -c SHA256SUMS 2>&1
)
command -v sha256sum >/dev/null || stop 'sha256sum is not installed' 'Install it: coreutils.'
if ! checked=$$(sums); then
    printf '%s\n' "$$checked" | grep -v ': OK$$' >&2
    stop "$$kit is not complete and unchanged" 'Copy the kit again.'
fi

found=
for candidate in "$${PYTHON:-}" $$(for it in $$versions; do echo "python$$it"; done) python3 /opt/conda/bin/python3; do
    [ -n "$$candidate" ] || continue
    version=$$("$$candidate" -I -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case " $$versions " in
    *" $$version "*)
        found=$$candidate
        break
        ;;
    esac
done
[ -n "$$found" ] || stop "found no Python of version $$versions with its module venv" \
    'Name one: PYTHON=/path/to/python3 ./run. Or make the kit for another version: --python.'

venv=$$kit/work/python-$$version
if [ ! -e "$$venv/complete" ]; then
    echo "run: making the environment of the program with $$found ($$version)" >&2
    "$$found" -I -m venv --clear --without-pip "$$venv" ||
        stop "$$found cannot make the environment $$venv" 'Name another Python: PYTHON=/path/to/python3 ./run'
    for pip in "$$kit"/wheels/pip-*.whl; do :; done
    # --isolated: the variables and files of the vendor's pip are for other environments.
    "$$venv/bin/python" -I "$$pip/pip" --isolated install --quiet --no-index --find-links "$$kit/wheels" \
        --disable-pip-version-check --requirement "$$kit/program/requirements.txt" ||
        stop 'the wheels of the kit cannot be installed' 'Make the kit on a machine with this system, or report this.'
    : >"$$venv/complete"
fi
unset PYTHONHOME
PYTHONUNBUFFERED=1 PYTHONPATH=$$kit/program exec "$$venv/bin/python" -m ci run-kit "$$kit" "$$@"
