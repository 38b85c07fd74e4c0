#!/bin/bash
# Runs examples/slurm/farm.sbatch on a cluster of Slurm of its own, on this machine alone, and says what held:
#
#     unshare --pid --fork --kill-child --mount-proc tests/farm/slurm.sh PROGRAM FOLDER PORT
#
# The daemons end with the namespace of processes. Three ports from PORT on are used.
set -euo pipefail
program=$(realpath "$1")
folder=$(realpath "$2")
job=$(realpath "$(dirname "$0")/../../examples/slurm/farm.sbatch")
host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf SHEAF=$program SHEAF_PORT=$3

fail() {
    echo "slurm: $1" >&2
    tail -n 20 "$folder"/*.log "$folder"/*.out >&2 || true
    exit 1
}

held() {
    echo "held: $1"
}

mkdir -m 700 "$folder/munge" "$folder/state" "$folder/spool"
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
munge=$folder/munge
munged --force --key-file="$munge/key" --socket="$munge/socket" --pid-file="$munge/pid" --seed-file="$munge/seed" \
    --log-file="$folder/munged.log"
cat >"$SLURM_CONF" <<CONF
ClusterName=sheaf
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(($3 + 1))
SlurmdPort=$(($3 + 2))
AuthType=auth/munge
AuthInfo=socket=$munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/state/slurmctld.pid
SlurmdPidFile=$folder/state/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld
slurmd
for _ in $(seq 300); do
    scontrol ping 2>/dev/null | grep -q UP && break
    sleep 0.1
done

farm() {
    cat <<FARM
[run]
flps = 2
epns = 2
$1
[flp]
rate_hz = 100.0
hold_bytes = 67108864
stf_bytes_max = 16777216
[flp.source]
kind = "generator"
bytes_mean = 20000
[icn.scheduler]
stf_bytes_max = 16777216
tf_bytes_max = 67108864
[epn.build]
capacity_bytes = 134217728
FARM
}

cd "$folder"
farm 'timeframes = 200' >ends.toml
sbatch --quiet --wait --time=5 --output=ends.out "$job" ends.toml || fail 'the job failed'
grep -q 'complete 200 + incomplete 0 + dropped 0' ends.out || fail 'not all TFs were built'
held 'a job ends with its run'

farm '' >endless.toml
id=$(sbatch --parsable --time=5 --output=endless.out "$job" endless.toml)
# The first TF that is decided.
grep -m 1 -q '"verdict"' < <(timeout 120 tail --retry --follow=name "sheaf-$id/icn-0.events" 2>/dev/null) \
    || fail 'no TF was decided'
scancel --signal=USR1 --batch "$id"
# Behind a job that depends on it; the status of that one tells how it ended.
sbatch --quiet --wait --dependency="afterok:$id" --kill-on-invalid-dep=yes --output=after.out --wrap=true \
    || fail 'the job that was to drain failed'
grep -q 'no contradiction' endless.out || fail 'the books are wrong'
grep -q 'incomplete 0 + dropped 0 + in flight 0' endless.out || fail 'something was lost'
held 'a signal before the time limit drains the farm'

sed -i 's/^epns = 2/epns = two/' ends.toml
if sbatch --quiet --wait --output=wrong.out "$job" ends.toml; then
    fail 'a farm file that is none went through'
fi
grep -q 'ends.toml\|farm.toml' wrong.out || fail 'the farm file is not named'
held 'a farm file that is none is named'
