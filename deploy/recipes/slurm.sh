#!/usr/bin/env bash
#SBATCH --job-name=longhaul
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=longhaul-%j.log
# A run on nodes of a Slurm cluster: a coordinator on the first node, workers on all, and a run that goes on where the
# job before it ended.
#
#   sbatch deploy/recipes/slurm.sh run.yaml
#
#   LONGHAUL_HOME_DIR  folder that all nodes share: the coordinator's state; default: $HOME/longhaul-slurm
#   LONGHAUL_LOCAL     folder on each node for checkpoints; default: LONGHAUL_HOME_DIR/nodes
#
# longhaul's programs are on PATH on all nodes. Two minutes before the job's time is over, Slurm sends SIGTERM to this
# script, which stops the run with a checkpoint. The next job with the same file resumes it.
set -euo pipefail

run=${1:?expected a run file: sbatch slurm.sh run.yaml}
shared=${LONGHAUL_HOME_DIR:-$HOME/longhaul-slurm}
here=${LONGHAUL_RECIPES:-${SLURM_SUBMIT_DIR:-$PWD}/deploy/recipes}
port=${LONGHAUL_PORT:-7070}
address=${LONGHAUL_ADDRESS:-$(hostname -f)}:$port
mkdir -p "$shared"

name=$(longhaul plan "$run" --show-config | sed -n 's/^name: *"*\([^"]*\)"*$/\1/p')
[ -n "$name" ] || { echo "slurm.sh: expected a key 'name' in $run" >&2; exit 1; }

longhaul-coordinator --listen "${LONGHAUL_LISTEN:-0.0.0.0}:$port" --state-dir "$shared/coordinator" \
  --worker-token-file "$shared/workers.token" &
coordinator=$!
export LONGHAUL_COORDINATOR=$address LONGHAUL_TOKEN_FILE=$shared/coordinator/token LONGHAUL_HOME=$shared/cli
until longhaul ps >/dev/null 2>&1; do
  kill -0 "$coordinator" || { echo "slurm.sh: the coordinator has ended; what it said stands above" >&2; exit 1; }
  sleep 0.2
done

LONGHAUL_TOKEN_FILE=$shared/workers.token LONGHAUL_STATE=${LONGHAUL_LOCAL:-$shared/nodes} \
  srun --kill-on-bad-exit=0 bash "$here/worker.sh" &
workers=$!

trap 'longhaul stop "$name" || true' TERM

# A run of this name that a job before has left goes on; otherwise it begins.
resume=()
if longhaul status "$name" >/dev/null 2>&1; then resume=(--resume); fi
id=$(longhaul submit "$run" "${resume[@]}" | sed -n 1p)
longhaul watch "$id" &
watching=$!
# A signal ends `wait`, not what it waits for.
until wait "$watching" || ! kill -0 "$watching" 2>/dev/null; do :; done
status=0
wait "$watching" || status=$?
kill "$workers" "$coordinator" 2>/dev/null || true
wait || true
exit "$status"
