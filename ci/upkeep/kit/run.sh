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

for folder in "$$kit" "$$kit/work" "$$kit/report"; do
    [ ! -e "$$folder" ] || [ -w "$$folder" ] || stop "$$folder: $$(id -un) cannot write there" \
        'Copy the kit to a disk and a folder of yours, without work/ and report/, or run it as their owner.'
done

found= tried=
for candidate in "$${PYTHON:-}" $$(for it in $$versions; do echo "python$$it"; done) python3 /opt/conda/bin/python3; do
    [ -n "$$candidate" ] || continue
    version=$$("$$candidate" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) || {
        case $$(command -v "$$candidate") in
        '') [ "$$candidate" != "$${PYTHON:-}" ] || tried="$$tried; PYTHON=$$candidate is not there" ;;
        *) tried="$$tried; $$candidate does not work: $$(printf '%s\n' "$$version" | tail -n 1)" ;;
        esac
        continue
    }
    case " $$versions " in
    *" $$version "*)
        if "$$candidate" -I -c 'import venv' 2>/dev/null; then
            found=$$candidate
            break
        fi
        tried="$$tried; $$candidate has no module venv (Debian and Ubuntu: apt install python$$version-venv)"
        ;;
    *) tried="$$tried; $$candidate is Python $$version" ;;
    esac
done
[ -n "$$found" ] || stop "found no Python of version $$versions with its module venv$$tried" \
    'Name one: PYTHON=/path/to/python3 ./run. Or have the kit made for another version: kit --python VERSION.'

venv=$$kit/work/python-$$version
# One of another machine, copied with the kit, may not work here.
if [ ! -e "$$venv/complete" ] || ! "$$venv/bin/python" -I -c '' 2>/dev/null; then
    free=$$(df -Pk "$$kit" | awk 'NR == 2 { print int($$4 / 1024) }')
    [ "$${free:-$needed}" -ge $needed ] || stop "$$kit: got $$free MB of free space, expected $needed MB" \
        'Make room, or copy the kit to another disk.'
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
