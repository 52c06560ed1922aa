#!/usr/bin/env bash
# Runs the tests of this bundle on this machine's GPU. Written by `cargo xtask bundle`.
#
#   ./run.sh [--sanitizer] [--timeout SECONDS] [FILTER]
#
# FILTER            only tests with this in their names
# --sanitizer       under compute-sanitizer: memcheck, racecheck, initcheck and synccheck, one after the other.
#                   The program is looked for in $COMPUTE_SANITIZER, PATH and the CUDA toolkit's folder.
#                   Without FILTER only tests that use the GPU are run.
# --timeout SECONDS for each test binary (and tool); 600 if not given
#
# A missing GPU is a failure. Benches and examples lie beside and are started by hand.
set -u
cd "$(dirname "$0")" || exit 2

sanitizer=no timeout=600 filter=()
while [ $# -gt 0 ]; do
    case $1 in
        --sanitizer) sanitizer=yes ;;
        --timeout) shift; timeout=${1:?--timeout needs a number of seconds} ;;
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) filter+=("$1") ;;
    esac
    shift
done

export FERROLAYER_REQUIRE_GPU=1
tools=(none)
if [ "$sanitizer" = yes ]; then
    program=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
    if [ ! -x "$program" ]; then
        echo "no compute-sanitizer: it is in the CUDA toolkit, and in the Python package nvidia-cuda-sanitizer-api" >&2
        exit 2
    fi
    tools=(memcheck racecheck initcheck synccheck)
fi

results=() failed=0
# run NAME COMMAND..: runs it, shows its output, and notes how it ended.
run() {
    local name=$1 start=$SECONDS code result
    shift
    echo "== $name"
    timeout --kill-after=10 "$timeout" "$@"
    code=$?
    case $code in
        0) result=passed ;;
        124 | 137) result="FAILED (timeout of $timeout s)" ;;
        *) result="FAILED (exit code $code)" ;;
    esac
    [ $code -eq 0 ] || failed=$((failed + 1))
    results+=("$(printf '%-28s %-28s %5d s' "$name" "$result" $((SECONDS - start)))")
}

for tool in "${tools[@]}"; do
    for test in tests/*; do
        [ -x "$test" ] || continue
        name=$(basename "$test")
        if [ "$tool" = none ]; then
            run "$name" "$test" ${filter[@]+"${filter[@]}"}
        else
            # Each test process in turn, and the sanitizer's verdict as its exit code. Tests on the CPU have nothing
            # to check: those on the GPU say so in their names.
            only=(${filter[@]+"${filter[@]}"})
            [ ${#only[@]} -gt 0 ] || { [ "$name" = ops ] && only=(::gpu); }
            run "$name, $tool" "$program" --tool "$tool" --error-exitcode 99 --target-processes all \
                "$test" --test-threads 1 ${only[@]+"${only[@]}"}
        fi
    done
done

echo
printf '%s\n' ${results[@]+"${results[@]}"}
if [ ${#results[@]} -eq 0 ]; then
    echo "nothing to run in tests/"
    exit 1
elif [ $failed -gt 0 ]; then
    echo "$failed of ${#results[@]} failed"
    exit 1
fi
echo "all passed"
