#compdef shellsession

# zsh completion of shellsession, made from the parsers by `make generated`

_shtab_shellsession_commands() {
  local _commands=(
    agent:'give a task to a small agent, with bash if you allow it'
    approvals:'show the commands that wait for your yes, and answer'
    attach:'use an agent'"'"'s session yourself, at a prompt'
    branch:'show, apply or discard what an agent wrote on its branch'
    bridge:'connect a client elsewhere to the daemon here (see --via)'
    checkpoint:'keep the files of an agent'"'"'s branch, and its shell'
    completion:'print a script for completion in bash, zsh or fish'
    doctor:'check this machine, and say how to fix what is missing'
    forget:'delete what is recorded about agents without a session'
    fork:'copy an agent'"'"'s shell to another agent'
    history:'list the commands of one agent'
    interrupt:'end the running command, keep the session'
    jobs:'list what earlier commands left running'
    kill:'close sessions, and end everything that runs in them'
    log:'show who ran what, and how it ended'
    ls:'list the agents and what they run'
    mcp:'serve a session'"'"'s verbs to MCP clients over stdio'
    output:'show parts of what a command printed'
    restart:'give an agent a fresh bash'
    restore:'give an agent a fresh bash with the state in a file'
    rollback:'bring an agent'"'"'s files and shell back to a checkpoint'
    run:'run a command in an agent'"'"'s session'
    send:'type into the terminal of a running command'
    serve:'run the daemon that holds the sessions'
    snapshot:'write the state of an agent'"'"'s shell to a file'
    status:'show the state of the daemon'
    stop:'end the daemon and every session'
    top:'watch all agents in a live table'
    wait:'wait for a running command, and print its output'
    why:'say what the running command waits for'
    workflow:'run many steps in one shell, from a file'
  )
  _describe 'shellsession commands' _commands
}

_shtab_shellsession_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "(- : *)--version[show the version]"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_defaults_added=0

_shtab_shellsession_agent_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--bash[let it run bash commands, at your own risk]"
  "--model[the model]:NAME:"
  ":the task, in your words:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_agent_defaults_added=0

_shtab_shellsession_approvals_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  {-s,--agent}"[only the questions of this agent]:AGENT:_shellsession_agents"
  "--follow[go on, and show each new question and each answer]"
  "--session[with accept]"
  "--rule[with accept]"
  "--prefix[with accept]:WORDS:"
  "--reason[with decline]:TEXT:"
  "--remove[with rules]:ID:"
  "--json[print JSON]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":the question:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_approvals_defaults_added=0

_shtab_shellsession_attach_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--read-only[see what runs, and type nothing]"
  "--others[the agent\'s own calls wait up to their patience]:others:(wait refuse)"
  "--socket[the daemon\'s socket]:PATH:_files"
  ":whose session:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_attach_defaults_added=0

_shtab_shellsession_branch_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--patch[diff]"
  "--since[diff]:CHECKPOINT:"
  "--overwrite[apply]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":what to do with the changes:(diff apply discard)"
  ":whose session:_shellsession_agents"
  "*:apply:_files"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_branch_defaults_added=0

_shtab_shellsession_bridge_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_bridge_defaults_added=0

_shtab_shellsession_checkpoint_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--end-jobs[kill its jobs, which could write to the files]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  "--list[list its checkpoints in place of making one]"
  "--drop[forget the checkpoint NAME in place of making one]"
  ":whose session:_shellsession_agents"
  ":its name, for rollback:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_checkpoint_defaults_added=0

_shtab_shellsession_completion_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  ":bash, zsh or fish:(bash zsh fish)"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_completion_defaults_added=0

_shtab_shellsession_doctor_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--json[print a JSON object for each finding]"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_doctor_defaults_added=0

_shtab_shellsession_forget_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--all[the records of all agents without a session]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "*:whose records:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_forget_defaults_added=0

_shtab_shellsession_fork_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":the agent that gets the copy:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_fork_defaults_added=0

_shtab_shellsession_history_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "-n[the last N]:N:"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--audit[the log]:PATH:_files"
  "--json[print the lines as they were recorded]"
  ":whose commands:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_history_defaults_added=0

_shtab_shellsession_interrupt_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--json[print the whole result as one JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_interrupt_defaults_added=0

_shtab_shellsession_jobs_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--wait[first wait until JOB ends]"
  "--until[first wait until the output of JOB matches this regular expression]:RE:"
  "--kill[end JOB and everything below it]"
  "--release[let JOB outlive the session]"
  "--timeout[wait for at most S seconds]:S:"
  "--tail[print only the last N lines of each stream of JOB]:N:"
  "--json[print JSON, with the output of each job since its command returned]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":the id of one job, as the list shows it:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_jobs_defaults_added=0

_shtab_shellsession_kill_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--all[the sessions of all agents]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  "*:whose sessions:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_kill_defaults_added=0

_shtab_shellsession_log_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  {-s,--session}"[only the commands of this agent]:AGENT:_shellsession_agents"
  "-n[the last N]:N:"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--audit[the log]:PATH:_files"
  "--json[print the lines as they were recorded]"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_log_defaults_added=0

_shtab_shellsession_ls_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--names[only the names, one per line]"
  "--json[print a JSON list]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_ls_defaults_added=0

_shtab_shellsession_mcp_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  {-s,--session}"[use this agent\'s session, held by the daemon]:AGENT:_shellsession_agents"
  "--idle-ttl[with -s, close the session after S idle seconds]:S:"
  "--no-recover[after the end of its shell, start with a fresh one]"
  "--timeout[seconds that a command may run if the model names no limit]:S:"
  "--patience[seconds that a call may take]:S:"
  "--max-chars[the longest text that the model gets]:N:"
  "--monitor[also offer the tool monitor, and the resource shellsession]"
  "--checkpoints[also offer the tools checkpoint, rollback and diff, which need --branch]"
  {-C,--cwd}"[where it starts]:DIR:_files -/"
  "*--env[a variable of its environment]:NAME=VALUE:"
  "--branch[write below DIR to a branch of it]:DIR:_files -/"
  "--auto-checkpoints[keep the moments before its last N commands that wrote on the branch, for \`shellsession rollback\`]:N:"
  "*--startup[what its shell runs first, before any command, such as \'. venv\/bin\/activate\']:COMMAND:_normal"
  "--sandbox[confine it with bubblewrap]"
  "*--write[what it can write]:DIR:_files -/"
  "*--hide[what it cannot see, such as \~\/.ssh]:PATH:_files"
  "--missing-ok[skip --hide paths that do not exist]"
  "--network[give it the host\'s network]"
  "--memory[the memory of all its processes together, such as 512M]:SIZE:"
  "--cpu[its processor time]:N:"
  "*--pass-env[a variable of this environment that it gets, such as \'AWS_\*\']:PATTERN:"
  "*--deny[a command that must not run, such as \'git push\']:CMD:"
  "*--allow[only such commands may run]:CMD:"
  "*--redirect[the only files that redirections may write, such as \'\/tmp\/\*\*\']:PATTERN:"
  "--strict[refuse what cannot be judged]"
  "--approvals[a command that the rules do not allow waits for a person]"
  "--redact[mask keys, tokens and passwords of known forms]"
  "--confirm[have the client ask its user before a command runs]"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_mcp_defaults_added=0

_shtab_shellsession_output_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--stream[which stream]:stream:(stdout stderr)"
  "--lines[the lines from A to B, counted from 1]:A:B:"
  "--grep[only the lines that match a Python regular expression]:RE:"
  "--bytes[the bytes from A up to B]:A:B:"
  "--tail[the last N lines]:N:"
  "--follow[go on with what comes]"
  "--since[only what is new since the answer that gave this number, if more may come]:N:"
  "--max-chars[how much to show at most]:N:"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":id of a result or job:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_output_defaults_added=0

_shtab_shellsession_restart_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--keep-state[the fresh bash gets the state of the old one]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_restart_defaults_added=0

_shtab_shellsession_restore_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":the file of the snapshot:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_restore_defaults_added=0

_shtab_shellsession_rollback_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--files-only[keep its bash as it is]"
  "--end-jobs[kill its jobs, which could write to the files]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":the name of the checkpoint:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_rollback_defaults_added=0

_shtab_shellsession_run_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  {-s,--session}"[whose session]:AGENT:_shellsession_agents"
  "--timeout[let it run for at most S seconds]:S:"
  "--patience[wait at most S seconds for other commands, or for a person who is attached]:S:"
  "--on-timeout[at the time limit, end the command, end its shell, too, or hand it back running]:on_timeout:(interrupt kill yield)"
  "--idle-timeout[end it after S seconds without output]:S:"
  "--idle-ttl[close the session after S idle seconds]:S:"
  "--no-recover[after the end of its shell, start with a fresh one]"
  "--tty[its stdout is a terminal]"
  "--isolated[run it in a subshell]"
  "--errexit[end it where its first command fails, as \`bash -e\` does]"
  "--stdin[pass it this process\'s stdin, read to its end first]"
  {-i,--interactive}"[its stdin is the session\'s terminal]"
  "--merge-stderr[write both streams to stdout, in order]"
  "-C[run only this command in DIR]:DIR:_files -/"
  "*--env[an environment variable for this command only]:NAME=VALUE:"
  "--idempotency-key[run it once]:KEY:"
  "--no-start[start no daemon if none runs]"
  "--json[print the whole result as one JSON object at the end, instead of the output as it arrives]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  "--cwd[where it starts]:DIR:_files -/"
  "--branch[write below DIR to a branch of it]:DIR:_files -/"
  "--auto-checkpoints[keep the moments before its last N commands that wrote on the branch, for \`shellsession rollback\`]:N:"
  "*--startup[what its shell runs first, before any command, such as \'. venv\/bin\/activate\']:COMMAND:_normal"
  "--sandbox[confine it with bubblewrap]"
  "*--write[what it can write]:DIR:_files -/"
  "*--hide[what it cannot see, such as \~\/.ssh]:PATH:_files"
  "--missing-ok[skip --hide paths that do not exist]"
  "--network[give it the host\'s network]"
  "--memory[the memory of all its processes together, such as 512M]:SIZE:"
  "--cpu[its processor time]:N:"
  "*--pass-env[a variable of this environment that it gets, such as \'AWS_\*\']:PATTERN:"
  "*--deny[a command that must not run, such as \'git push\']:CMD:"
  "*--allow[only such commands may run]:CMD:"
  "*--redirect[the only files that redirections may write, such as \'\/tmp\/\*\*\']:PATTERN:"
  "--strict[refuse what cannot be judged]"
  "--approvals[a command that the rules do not allow waits for a person]"
  "--redact[mask keys, tokens and passwords of known forms]"
  "--confirm[ask at this terminal before it runs]"
  "--max-chars[a result keeps N bytes of each stream, half from its start and half from its end]:N:"
  "(-)*::a script, or words:_normal"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_run_defaults_added=0

_shtab_shellsession_send_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "-n[do not press Enter after it]"
  "--keys[keys to press after TEXT, as tmux names them]:NAMES:"
  "--timeout[wait for the command for at most S seconds]:S:"
  "--json[print the whole result as one JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":what to type:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_send_defaults_added=0

_shtab_shellsession_serve_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--max-sessions[at most N agents with a session]:N:"
  "--idle-ttl[close a session that was idle for S seconds]:S:"
  "--patience[when it stops, give running commands S seconds to end]:S:"
  "--lease[end it and its sessions at once if no client renews its lease for S seconds]:S:"
  "--audit[the audit log]:PATH:_files"
  "--log-level[the level of its own log]:log_level:(debug info warning error)"
  "--log-file[its own log, 0600, rotated]:PATH:_files"
  "--detach[return when it listens]"
  {-C,--cwd}"[where it starts]:DIR:_files -/"
  "*--env[a variable of its environment]:NAME=VALUE:"
  "--branch[write below DIR to a branch of it]:DIR:_files -/"
  "--auto-checkpoints[keep the moments before its last N commands that wrote on the branch, for \`shellsession rollback\`]:N:"
  "*--startup[what its shell runs first, before any command, such as \'. venv\/bin\/activate\']:COMMAND:_normal"
  "--sandbox[confine it with bubblewrap]"
  "*--write[what it can write]:DIR:_files -/"
  "*--hide[what it cannot see, such as \~\/.ssh]:PATH:_files"
  "--missing-ok[skip --hide paths that do not exist]"
  "--network[give it the host\'s network]"
  "--memory[the memory of all its processes together, such as 512M]:SIZE:"
  "--cpu[its processor time]:N:"
  "*--pass-env[a variable of this environment that it gets, such as \'AWS_\*\']:PATTERN:"
  "*--deny[a command that must not run, such as \'git push\']:CMD:"
  "*--allow[only such commands may run]:CMD:"
  "*--redirect[the only files that redirections may write, such as \'\/tmp\/\*\*\']:PATTERN:"
  "--strict[refuse what cannot be judged]"
  "--approvals[a command that the rules do not allow waits for a person]"
  "--redact[mask keys, tokens and passwords of known forms]"
  "--max-chars[a result keeps N bytes of each stream, half from its start and half from its end]:N:"
  "--timeout[how many seconds a command may run if its caller names no limit]:S:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_serve_defaults_added=0

_shtab_shellsession_snapshot_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "*--exclude[leave out such names]:PATTERN:"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
  ":the file of the snapshot:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_snapshot_defaults_added=0

_shtab_shellsession_status_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--json[print a JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_status_defaults_added=0

_shtab_shellsession_stop_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket[the daemon\'s socket]:PATH:_files"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_stop_defaults_added=0

_shtab_shellsession_top_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--once[print the table once, and exit]"
  "--sort[the order]:sort:(runs name idle)"
  "--filter[only agents with this text in the table]:TEXT:"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_top_defaults_added=0

_shtab_shellsession_wait_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--until[return once the output matches this regular expression]:RE:"
  "--timeout[wait for at most S seconds]:S:"
  "--json[print the whole result as one JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_wait_defaults_added=0

_shtab_shellsession_why_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--json[print kind, text, pid and comm as one JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":whose session:_shellsession_agents"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_why_defaults_added=0

_shtab_shellsession_workflow_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--resume[continue the last run of this file where it stopped]"
  "--agent[with --resume]:AGENT:_shellsession_agents"
  "--rerun[with --resume]:STEP:"
  "--skip[with --resume]:STEP:"
  "--force[resume although steps that are done have changed since]"
  "*--input[a value]:NAME=VALUE:"
  "*--only[run only this step]:STEP:"
  "--from[begin with this step]:STEP:"
  "--until[end after this step]:STEP:"
  "--dry-run[list the steps that would run, and run nothing]"
  "--junit[write a report as JUnit XML]:PATH:_files"
  "--markdown[write a report as Markdown]:PATH:_files"
  "--no-start[start no daemon if none runs]"
  "--json[print each event, or each step, as one JSON object]"
  "--socket[the daemon\'s socket]:PATH:_files"
  "--via[a program that leads to the daemon elsewhere, such as \'ssh box\']:WORDS:"
  ":what to do with the files:(run check list)"
  "(*):a workflow in YAML, or a page in Markdown:"
)

# guard to ensure default positional specs are added only once per session
_shtab_shellsession_workflow_defaults_added=0


_shtab_shellsession() {
  local context state line curcontext="$curcontext" one_or_more='(*)' remainder='(-)*:' default='*::: :->shellsession'

  # Add default positional/remainder specs only if none exist, and only once per session
  if (( ! _shtab_shellsession_defaults_added )); then
    if (( ${_shtab_shellsession_options[(I)${(q)one_or_more}*]} +          ${_shtab_shellsession_options[(I)${(q)remainder}*]} +          ${_shtab_shellsession_options[(I)${(q)default}]} == 0 )); then
      _shtab_shellsession_options+=(': :_shtab_shellsession_commands' '*::: :->shellsession')
    fi
    _shtab_shellsession_defaults_added=1
  fi
  _arguments -C -s -S $_shtab_shellsession_options

  case $state in
    shellsession)
      words=($line[1] "${words[@]}")
      (( CURRENT += 1 ))
      curcontext="${curcontext%:*:*}:_shtab_shellsession-$line[1]:"
      case $line[1] in
        agent) _arguments -C -s -S $_shtab_shellsession_agent_options ;;
        approvals) _arguments -C -s -S $_shtab_shellsession_approvals_options ;;
        attach) _arguments -C -s -S $_shtab_shellsession_attach_options ;;
        branch) _arguments -C -s -S $_shtab_shellsession_branch_options ;;
        bridge) _arguments -C -s -S $_shtab_shellsession_bridge_options ;;
        checkpoint) _arguments -C -s -S $_shtab_shellsession_checkpoint_options ;;
        completion) _arguments -C -s -S $_shtab_shellsession_completion_options ;;
        doctor) _arguments -C -s -S $_shtab_shellsession_doctor_options ;;
        forget) _arguments -C -s -S $_shtab_shellsession_forget_options ;;
        fork) _arguments -C -s -S $_shtab_shellsession_fork_options ;;
        history) _arguments -C -s -S $_shtab_shellsession_history_options ;;
        interrupt) _arguments -C -s -S $_shtab_shellsession_interrupt_options ;;
        jobs) _arguments -C -s -S $_shtab_shellsession_jobs_options ;;
        kill) _arguments -C -s -S $_shtab_shellsession_kill_options ;;
        log) _arguments -C -s -S $_shtab_shellsession_log_options ;;
        ls) _arguments -C -s -S $_shtab_shellsession_ls_options ;;
        mcp) _arguments -C -s -S $_shtab_shellsession_mcp_options ;;
        output) _arguments -C -s -S $_shtab_shellsession_output_options ;;
        restart) _arguments -C -s -S $_shtab_shellsession_restart_options ;;
        restore) _arguments -C -s -S $_shtab_shellsession_restore_options ;;
        rollback) _arguments -C -s -S $_shtab_shellsession_rollback_options ;;
        run) _arguments -C -s -S $_shtab_shellsession_run_options ;;
        send) _arguments -C -s -S $_shtab_shellsession_send_options ;;
        serve) _arguments -C -s -S $_shtab_shellsession_serve_options ;;
        snapshot) _arguments -C -s -S $_shtab_shellsession_snapshot_options ;;
        status) _arguments -C -s -S $_shtab_shellsession_status_options ;;
        stop) _arguments -C -s -S $_shtab_shellsession_stop_options ;;
        top) _arguments -C -s -S $_shtab_shellsession_top_options ;;
        wait) _arguments -C -s -S $_shtab_shellsession_wait_options ;;
        why) _arguments -C -s -S $_shtab_shellsession_why_options ;;
        workflow) _arguments -C -s -S $_shtab_shellsession_workflow_options ;;
      esac
  esac
}

# Custom Preamble
_shellsession_agents() {
  local -a names=(${(f)"$(shellsession ls --names 2>/dev/null)"})
  compadd -a names
}
# End Custom Preamble


typeset -A opt_args

if [[ $zsh_eval_context[-1] == eval ]]; then
  # eval/source/. command, register function for later
  compdef _shtab_shellsession -N shellsession
else
  # autoload from fpath, call function directly
  _shtab_shellsession "$@"
fi
