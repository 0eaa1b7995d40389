"""``python agent.pyz JOB.json``; ``hold`` and ``enter`` are the two ends of a session.

``unpack`` fills the folders of a pod before its agent starts.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from ci.agent import session
from ci.agent.run import JobRun
from ci.agent.unpack import unpack
from ci.agent.user import StageUser
from ci.protocol.job import DISK_FULL, ENTER, PROTOCOL, UNPACK, read_job

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # a disk that takes no more


def main() -> None:
    """Execute the job named on the command line, and exit with its exit code."""
    if sys.argv[1] == session.HOLD:
        session.hold()
    if sys.argv[1] == ENTER:
        sys.exit(session.enter(sys.argv[2:]))
    if sys.argv[1] == UNPACK:
        unpack(sys.argv[2:])
        return
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if document.get("protocol") != PROTOCOL:
        sys.exit(f"agent: job protocol {document.get('protocol')}, expected {PROTOCOL}")
    job = read_job(document)
    try:
        if job.user is not None:
            with StageUser.find(job.user).access():
                pass
    except (OSError, OverflowError) as error:
        sys.exit(f"agent: stages cannot run as user {job.user}: {error}")
    try:
        code = JobRun(job).execute()
    except OSError as error:
        if error.errno not in FULL:
            raise
        sys.stderr.write(f"agent: cannot write its records: {error.strerror}\n")
        code = DISK_FULL
    sys.exit(code)


if __name__ == "__main__":
    main()
