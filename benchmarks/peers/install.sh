#!/usr/bin/env bash
# Makes .venv-peers in the root of the checkout: this package and the peers, apart from the project's own .venv.
# Run it again at will: it does nothing until a file that it reads has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=.venv-peers
stamp=$venv/.installed
python=${PYTHON:-python3.11}
requirements=benchmarks/peers/requirements.txt

fresh=yes
for file in benchmarks/peers/install.sh "$requirements" constraints.txt pyproject.toml; do
  [[ $stamp -nt $file ]] || fresh=no
done
if [[ $fresh == yes ]]; then
  echo "$venv is up to date."
  exit 0
fi

[[ -x $venv/bin/pip ]] || "$python" -m venv "$venv"
# Git need not know of it, whatever the project's .gitignore says.
echo '*' > "$venv/.gitignore"
# One command, with the torch pin of constraints.txt: any other torch would bring gigabytes of CUDA libraries.
"$venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e . -r "$requirements"

pinned=$(sed -n 's/^torch==//p' constraints.txt)
found=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("torch").partition("+")[0])')
if [[ $found != "$pinned" ]]; then
  echo "torch is $found, but constraints.txt pins $pinned; remove $venv and try again." >&2
  exit 1
fi
touch "$stamp"
echo "$venv is ready: $venv/bin/python benchmarks/peers/run.py"
