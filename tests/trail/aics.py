"""Another program's witness, aics-witness of PyPI, before our trail; and its verifier, aics-tlog, of our witness.

    aics.py COLIBRI STATE COSIGNED WITNESS

What it must say: our cosignature in the file COSIGNED is by the key in WITNESS; theirs, of checkpoints that our
`trail proof --old` submits, is what our `trail verify` shows; a request that begins elsewhere is refused.
"""

import pathlib
import subprocess
import sys
import tempfile

from aics_tlog import checkpoint, cosign, note
from aics_witness import service, store
from aics_witness.config import LogConfig, parse_log_vkey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def ours(cosigned, witness):
    head, signed = checkpoint.checkpoint_from_note(cosigned.read_text())
    key = note.parse_vkey(witness.read_text().strip())
    lines = [line for line in signed.signatures if (line.name, line.key_id) == (key.name, key.key_id)]
    good = [cosign.verify_cosignature(line.signature, key.name, key.public_key, head.origin, head.size, head.root)
            for line in lines]
    assert good == [True], good


def theirs(colibri, state, work):
    def trail(*arguments):
        ran = subprocess.run([colibri, "trail", *map(str, arguments), "--state-dir", state], capture_output=True)
        return ran.returncode, ran.stdout

    private, name = Ed25519PrivateKey.generate(), "witness.example/w1"
    log = parse_log_vkey((state / "trail.pub").read_text())
    witness = service.Witness(name, private, store.WitnessStore(work / "db", create=True), [LogConfig(log.name, (log,))])
    request = trail("proof", "--old", 0)[1]
    line = witness.add_checkpoint(request)
    (work / "cosigned").write_bytes(request.partition(b"\n\n")[2] + line)
    (work / "key").write_text(note.format_vkey(cosign.cosignature_vkey(name, private.public_key())))
    status, said = trail("verify", "--cosigned", work / "cosigned", "--witness", work / "key")
    assert status == 0 and f"by {name} at ".encode() in said, said
    size = checkpoint.checkpoint_from_note((work / "cosigned").read_text())[0].size
    witness.add_checkpoint(trail("proof", "--old", size)[1])
    for wrong in (trail("proof", "--old", 0)[1], trail("proof", "--old", size - 1)[1]):
        try:
            witness.add_checkpoint(wrong)
        except service.WitnessError:
            continue
        raise SystemExit("aics-witness took a request that begins elsewhere")


def main():
    colibri, state, cosigned, witness = map(pathlib.Path, sys.argv[1:])
    ours(cosigned, witness)
    with tempfile.TemporaryDirectory() as work:
        theirs(colibri, state, pathlib.Path(work))
    print("aics-tlog takes our cosignatures, aics-witness our requests, and we its cosignatures")


if __name__ == "__main__":
    main()
