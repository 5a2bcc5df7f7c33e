# bash completion of shellsession, made from the parsers by `make generated`
_shellsession() {
    local line=$COMP_LINE words=() part word before verb choices= name kept option index
    COMPREPLY=()
    for part in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
        if [[ ! ${words-} || $line == [[:space:]]* ]]; then words+=("$part"); else words[-1]+=$part; fi
        line=${line#"${line%%[![:space:]]*}"}
        line=${line#"$part"}
    done
    word=${words[-1]} before=${words[-2]} verb=${words[1]}
    for ((index = 2; index < ${#words[@]} - 1; index++)); do
        [[ ${words[index]} == -- ]] && return # a command of its own follows
    done
    kept=${word%"${word##*[$COMP_WORDBREAKS]}"} option=
    if [[ $word == --*=* ]]; then before=${word%%=*} option=${word%%=*}= word=${word#*=}; fi
    case "$verb $before" in
    "$verb ${words[0]}") choices='run ls top send wait why interrupt jobs output restart snapshot restore fork branch checkpoint rollback kill attach approvals forget workflow log history status doctor serve bridge stop mcp agent completion' ;;
    'run -s' | 'run --session') choices='AGENTS' ;;
    'run --timeout' | 'run --patience' | 'run --idle-timeout' | 'run --idle-ttl' | 'run -C' | 'run --env' | 'run --idempotency-key' | 'run --socket' | 'run --via' | 'run --cwd' | 'run --branch' | 'run --auto-checkpoints' | 'run --startup' | 'run --write' | 'run --hide' | 'run --memory' | 'run --cpu' | 'run --pass-env' | 'run --deny' | 'run --allow' | 'run --redirect' | 'run --max-chars') choices='' ;;
    'run --on-timeout') choices='interrupt kill yield' ;;
    'run '*) if [[ $word == -* ]]; then choices='-h --help -s --session --timeout --patience --on-timeout --idle-timeout --idle-ttl --no-recover --tty --isolated --errexit --stdin -i --interactive --merge-stderr -C --env --idempotency-key --no-start --json --socket --via --cwd --branch --auto-checkpoints --startup --sandbox --write --hide --missing-ok --network --memory --cpu --pass-env --deny --allow --redirect --strict --approvals --redact --confirm --max-chars'; else choices=''; fi ;;
    'ls --socket' | 'ls --via') choices='' ;;
    'ls '*) if [[ $word == -* ]]; then choices='-h --help --names --json --socket --via'; else choices=''; fi ;;
    'top --sort') choices='runs name idle' ;;
    'top --filter' | 'top --socket' | 'top --via') choices='' ;;
    'top '*) if [[ $word == -* ]]; then choices='-h --help --once --sort --filter --socket --via'; else choices=''; fi ;;
    'send --keys' | 'send --timeout' | 'send --socket' | 'send --via') choices='' ;;
    'send '*) if [[ $word == -* ]]; then choices='-h --help -n --keys --timeout --json --socket --via'; else choices='AGENTS'; fi ;;
    'wait --until' | 'wait --timeout' | 'wait --socket' | 'wait --via') choices='' ;;
    'wait '*) if [[ $word == -* ]]; then choices='-h --help --until --timeout --json --socket --via'; else choices='AGENTS'; fi ;;
    'why --socket' | 'why --via') choices='' ;;
    'why '*) if [[ $word == -* ]]; then choices='-h --help --json --socket --via'; else choices='AGENTS'; fi ;;
    'interrupt --socket' | 'interrupt --via') choices='' ;;
    'interrupt '*) if [[ $word == -* ]]; then choices='-h --help --json --socket --via'; else choices='AGENTS'; fi ;;
    'jobs --until' | 'jobs --timeout' | 'jobs --tail' | 'jobs --socket' | 'jobs --via') choices='' ;;
    'jobs '*) if [[ $word == -* ]]; then choices='-h --help --wait --until --kill --release --timeout --tail --json --socket --via'; else choices='AGENTS'; fi ;;
    'output --stream') choices='stdout stderr' ;;
    'output --lines' | 'output --grep' | 'output --bytes' | 'output --tail' | 'output --since' | 'output --max-chars' | 'output --socket' | 'output --via') choices='' ;;
    'output '*) if [[ $word == -* ]]; then choices='-h --help --stream --lines --grep --bytes --tail --follow --since --max-chars --socket --via'; else choices='AGENTS'; fi ;;
    'restart --socket' | 'restart --via') choices='' ;;
    'restart '*) if [[ $word == -* ]]; then choices='-h --help --keep-state --socket --via'; else choices='AGENTS'; fi ;;
    'snapshot --exclude' | 'snapshot --socket' | 'snapshot --via') choices='' ;;
    'snapshot '*) if [[ $word == -* ]]; then choices='-h --help --exclude --socket --via'; else choices='AGENTS'; fi ;;
    'restore --socket' | 'restore --via') choices='' ;;
    'restore '*) if [[ $word == -* ]]; then choices='-h --help --socket --via'; else choices='AGENTS'; fi ;;
    'fork --socket' | 'fork --via') choices='' ;;
    'fork '*) if [[ $word == -* ]]; then choices='-h --help --socket --via'; else choices='AGENTS'; fi ;;
    'branch --since' | 'branch --socket' | 'branch --via') choices='' ;;
    'branch '*) if [[ $word == -* ]]; then choices='-h --help --patch --since --overwrite --socket --via'; else choices='diff apply discard'; fi ;;
    'checkpoint --socket' | 'checkpoint --via') choices='' ;;
    'checkpoint '*) if [[ $word == -* ]]; then choices='-h --help --end-jobs --socket --via --list --drop'; else choices='AGENTS'; fi ;;
    'rollback --socket' | 'rollback --via') choices='' ;;
    'rollback '*) if [[ $word == -* ]]; then choices='-h --help --files-only --end-jobs --socket --via'; else choices='AGENTS'; fi ;;
    'kill --socket' | 'kill --via') choices='' ;;
    'kill '*) if [[ $word == -* ]]; then choices='-h --help --all --socket --via'; else choices='AGENTS'; fi ;;
    'attach --others') choices='wait refuse' ;;
    'attach --socket') choices='' ;;
    'attach '*) if [[ $word == -* ]]; then choices='-h --help --read-only --others --socket'; else choices='AGENTS'; fi ;;
    'approvals -s' | 'approvals --agent') choices='AGENTS' ;;
    'approvals --prefix' | 'approvals --reason' | 'approvals --remove' | 'approvals --socket' | 'approvals --via') choices='' ;;
    'approvals '*) if [[ $word == -* ]]; then choices='-h --help -s --agent --follow --session --rule --prefix --reason --remove --json --socket --via'; else choices='accept decline cancel rules'; fi ;;
    'forget --socket') choices='' ;;
    'forget '*) if [[ $word == -* ]]; then choices='-h --help --all --socket'; else choices='AGENTS'; fi ;;
    'workflow --agent') choices='AGENTS' ;;
    'workflow --rerun' | 'workflow --skip' | 'workflow --input' | 'workflow --only' | 'workflow --from' | 'workflow --until' | 'workflow --junit' | 'workflow --markdown' | 'workflow --socket' | 'workflow --via') choices='' ;;
    'workflow '*) if [[ $word == -* ]]; then choices='-h --help --resume --agent --rerun --skip --force --input --only --from --until --dry-run --junit --markdown --no-start --json --socket --via'; else choices='run check list'; fi ;;
    'log -s' | 'log --session') choices='AGENTS' ;;
    'log -n' | 'log --socket' | 'log --audit') choices='' ;;
    'log '*) if [[ $word == -* ]]; then choices='-h --help -s --session -n --socket --audit --json'; else choices=''; fi ;;
    'history -n' | 'history --socket' | 'history --audit') choices='' ;;
    'history '*) if [[ $word == -* ]]; then choices='-h --help -n --socket --audit --json'; else choices='AGENTS'; fi ;;
    'status --socket') choices='' ;;
    'status '*) if [[ $word == -* ]]; then choices='-h --help --json --socket'; else choices=''; fi ;;
    'doctor '*) if [[ $word == -* ]]; then choices='-h --help --json'; else choices=''; fi ;;
    'serve --socket' | 'serve --max-sessions' | 'serve --idle-ttl' | 'serve --patience' | 'serve --lease' | 'serve --audit' | 'serve --log-file' | 'serve -C' | 'serve --cwd' | 'serve --env' | 'serve --branch' | 'serve --auto-checkpoints' | 'serve --startup' | 'serve --write' | 'serve --hide' | 'serve --memory' | 'serve --cpu' | 'serve --pass-env' | 'serve --deny' | 'serve --allow' | 'serve --redirect' | 'serve --max-chars' | 'serve --timeout') choices='' ;;
    'serve --log-level') choices='debug info warning error' ;;
    'serve '*) if [[ $word == -* ]]; then choices='-h --help --socket --max-sessions --idle-ttl --patience --lease --audit --log-level --log-file --detach -C --cwd --env --branch --auto-checkpoints --startup --sandbox --write --hide --missing-ok --network --memory --cpu --pass-env --deny --allow --redirect --strict --approvals --redact --max-chars --timeout'; else choices=''; fi ;;
    'bridge --socket') choices='' ;;
    'bridge '*) if [[ $word == -* ]]; then choices='-h --help --socket'; else choices=''; fi ;;
    'stop --socket') choices='' ;;
    'stop '*) if [[ $word == -* ]]; then choices='-h --help --socket'; else choices=''; fi ;;
    'mcp --socket' | 'mcp --via' | 'mcp --idle-ttl' | 'mcp --timeout' | 'mcp --patience' | 'mcp --max-chars' | 'mcp -C' | 'mcp --cwd' | 'mcp --env' | 'mcp --branch' | 'mcp --auto-checkpoints' | 'mcp --startup' | 'mcp --write' | 'mcp --hide' | 'mcp --memory' | 'mcp --cpu' | 'mcp --pass-env' | 'mcp --deny' | 'mcp --allow' | 'mcp --redirect') choices='' ;;
    'mcp -s' | 'mcp --session') choices='AGENTS' ;;
    'mcp '*) if [[ $word == -* ]]; then choices='-h --help --socket --via -s --session --idle-ttl --no-recover --timeout --patience --max-chars --monitor --checkpoints -C --cwd --env --branch --auto-checkpoints --startup --sandbox --write --hide --missing-ok --network --memory --cpu --pass-env --deny --allow --redirect --strict --approvals --redact --confirm'; else choices=''; fi ;;
    'agent --model') choices='' ;;
    'agent '*) if [[ $word == -* ]]; then choices='-h --help --bash --model'; else choices=''; fi ;;
    'completion '*) if [[ $word == -* ]]; then choices='-h --help'; else choices='bash zsh fish'; fi ;;
    esac
    if [[ $choices == AGENTS ]]; then
        while IFS= read -r name; do
            [[ $name == "$word"* ]] && COMPREPLY+=("$option$(printf %q "$name")")
        done < <("${words[0]}" ls --names 2>/dev/null)
    elif [[ $choices ]]; then
        mapfile -t COMPREPLY < <(compgen -P "$option" -W "$choices" -- "$word")
    fi
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o default -F _shellsession shellsession
