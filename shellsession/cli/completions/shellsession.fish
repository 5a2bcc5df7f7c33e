# fish completion of shellsession, made from the parsers by `make generated`

# Parse current commandline:
# - _shtab_shellsession_cmdpath=(sub)command path seen so far
# - _shtab_shellsession_npos=number of positional arguments given after it
# - options are skipped based on _shtab_shellsession_opts_with_value & _shtab_shellsession_commands lists
function _shtab_shellsession_scan
  set -g _shtab_shellsession_cmdpath ''
  set -g _shtab_shellsession_npos 0
  set -l tokens (commandline -opc)
  set -e tokens[1]
  set -l expect_value 0
  for t in $tokens
    if test $expect_value -eq 1
      set expect_value 0
      continue
    end
    switch "$t"
      case '--*=*'
        continue
      case '-*'
        if contains -- $t $_shtab_shellsession_opts_with_value
          set expect_value 1
        end
        continue
      case '*'
        if test $_shtab_shellsession_npos -eq 0
          set -l candidate $t
          if test -n "$_shtab_shellsession_cmdpath"
            set candidate "$_shtab_shellsession_cmdpath $t"
          end
          if contains -- $candidate $_shtab_shellsession_commands
            set -g _shtab_shellsession_cmdpath $candidate
            continue
          end
        end
        set -g _shtab_shellsession_npos (math $_shtab_shellsession_npos + 1)
    end
  end
end

# Condition helper: true if the current (sub)command path equals the given one.
function _shtab_shellsession_using
  _shtab_shellsession_scan
  test "$_shtab_shellsession_cmdpath" = "$argv"
end

set -g _shtab_shellsession_commands run ls send wait interrupt jobs output restart kill attach forget log history status doctor serve bridge stop mcp agent completion
set -g _shtab_shellsession_opts_with_value --allow --audit --bytes --cpu --cwd --deny --env --grep --hide --idle-timeout --idle-ttl --keys --lease --lines --log-file --log-level --max-chars --max-sessions --memory --model --on-timeout --others --pass-env --patience --redirect --session --socket --stream --timeout --until --via --write -C -n -s

complete -c shellsession -e
complete -c shellsession -f

complete -c shellsession -n _shtab_shellsession_using -s h -l help -d 'show this help message and exit'
complete -c shellsession -n _shtab_shellsession_using -l version -d 'show the version'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a run -d 'run a command in an agent'"'"'s session'
complete -c shellsession -n '_shtab_shellsession_using run' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using run' -s s -l session -xka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using run' -l timeout -x -d 'let it run for at most S seconds'
complete -c shellsession -n '_shtab_shellsession_using run' -l patience -x -d 'wait at most S seconds for other commands, or for a person who is attached'
complete -c shellsession -n '_shtab_shellsession_using run' -l on-timeout -xka "interrupt kill yield" -d 'at the time limit, end the command, end its shell, too, or hand it back running'
complete -c shellsession -n '_shtab_shellsession_using run' -l idle-timeout -x -d 'end it after S seconds without output'
complete -c shellsession -n '_shtab_shellsession_using run' -l tty -d 'its stdout is a terminal'
complete -c shellsession -n '_shtab_shellsession_using run' -l isolated -d 'run it in a subshell'
complete -c shellsession -n '_shtab_shellsession_using run' -l stdin -d 'pass it this process'"'"'s stdin, read to its end first'
complete -c shellsession -n '_shtab_shellsession_using run' -s i -l interactive -d 'its stdin is the session'"'"'s terminal'
complete -c shellsession -n '_shtab_shellsession_using run' -l merge-stderr -d 'write both streams to stdout, in order'
complete -c shellsession -n '_shtab_shellsession_using run' -s C -xka "(__fish_complete_directories)" -d 'run only this command in DIR'
complete -c shellsession -n '_shtab_shellsession_using run' -l env -x -d 'an environment variable for this command only'
complete -c shellsession -n '_shtab_shellsession_using run' -l no-start -d 'start no daemon if none runs'
complete -c shellsession -n '_shtab_shellsession_using run' -l json -d 'print the whole result as one JSON object at the end, instead of the output as it arrives'
complete -c shellsession -n '_shtab_shellsession_using run' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using run' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using run' -l cwd -xka "(__fish_complete_directories)" -d 'where it starts'
complete -c shellsession -n '_shtab_shellsession_using run' -l sandbox -d 'confine it with bubblewrap'
complete -c shellsession -n '_shtab_shellsession_using run' -l write -xka "(__fish_complete_directories)" -d 'what it can write'
complete -c shellsession -n '_shtab_shellsession_using run' -l hide -xka "(__fish_complete_path (commandline -ct))" -d 'what it cannot see, such as ~/.ssh'
complete -c shellsession -n '_shtab_shellsession_using run' -l missing-ok -d 'skip --hide paths that do not exist'
complete -c shellsession -n '_shtab_shellsession_using run' -l network -d 'give it the host'"'"'s network'
complete -c shellsession -n '_shtab_shellsession_using run' -l memory -x -d 'the memory of all its processes together, such as 512M'
complete -c shellsession -n '_shtab_shellsession_using run' -l cpu -x -d 'its processor time'
complete -c shellsession -n '_shtab_shellsession_using run' -l pass-env -x -d 'a variable of this environment that it gets, such as '"'"'AWS_*'"'"''
complete -c shellsession -n '_shtab_shellsession_using run' -l deny -x -d 'a command that must not run, such as '"'"'git push'"'"''
complete -c shellsession -n '_shtab_shellsession_using run' -l allow -x -d 'only such commands may run'
complete -c shellsession -n '_shtab_shellsession_using run' -l redirect -x -d 'the only files that redirections may write, such as '"'"'/tmp/**'"'"''
complete -c shellsession -n '_shtab_shellsession_using run' -l strict -d 'refuse what cannot be judged'
complete -c shellsession -n '_shtab_shellsession_using run' -l redact -d 'mask keys, tokens and passwords of known forms'
complete -c shellsession -n '_shtab_shellsession_using run' -l confirm -d 'ask at this terminal before it runs'
complete -c shellsession -n '_shtab_shellsession_using run' -l max-chars -x -d 'a result keeps N bytes of each stream, half from its start and half from its end'
complete -c shellsession -n '_shtab_shellsession_using run; and test $_shtab_shellsession_npos -ge 0' -ka "(__fish_complete_path (commandline -ct))" -d 'a script, or words'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a ls -d 'list the agents and what they run'
complete -c shellsession -n '_shtab_shellsession_using ls' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using ls' -l names -d 'only the names, one per line'
complete -c shellsession -n '_shtab_shellsession_using ls' -l json -d 'print a JSON list'
complete -c shellsession -n '_shtab_shellsession_using ls' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using ls' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a send -d 'type into the terminal of a running command'
complete -c shellsession -n '_shtab_shellsession_using send' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using send' -s n -d 'do not press Enter after it'
complete -c shellsession -n '_shtab_shellsession_using send' -l keys -x -d 'keys to press after TEXT, as tmux names them'
complete -c shellsession -n '_shtab_shellsession_using send' -l timeout -x -d 'wait for the command for at most S seconds'
complete -c shellsession -n '_shtab_shellsession_using send' -l json -d 'print the whole result as one JSON object'
complete -c shellsession -n '_shtab_shellsession_using send' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using send' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using send; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a wait -d 'wait for a running command, and print its output'
complete -c shellsession -n '_shtab_shellsession_using wait' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using wait' -l until -x -d 'return once the output matches this regular expression'
complete -c shellsession -n '_shtab_shellsession_using wait' -l timeout -x -d 'wait for at most S seconds'
complete -c shellsession -n '_shtab_shellsession_using wait' -l json -d 'print the whole result as one JSON object'
complete -c shellsession -n '_shtab_shellsession_using wait' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using wait' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using wait; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a interrupt -d 'end the running command, keep the session'
complete -c shellsession -n '_shtab_shellsession_using interrupt' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using interrupt' -l json -d 'print the whole result as one JSON object'
complete -c shellsession -n '_shtab_shellsession_using interrupt' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using interrupt' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using interrupt; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a jobs -d 'list what earlier commands left running'
complete -c shellsession -n '_shtab_shellsession_using jobs' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l wait -d 'first wait until JOB ends'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l until -x -d 'first wait until the output of JOB matches this regular expression'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l kill -d 'end JOB and everything below it'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l release -d 'let JOB outlive the session'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l timeout -x -d 'wait for at most S seconds'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l json -d 'print JSON, with the output of each job since its command returned'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using jobs' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using jobs; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a output -d 'show parts of what a command printed'
complete -c shellsession -n '_shtab_shellsession_using output' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using output' -l stream -xka "stdout stderr" -d 'which stream'
complete -c shellsession -n '_shtab_shellsession_using output' -l lines -x -d 'the lines from A to B, counted from 1'
complete -c shellsession -n '_shtab_shellsession_using output' -l grep -x -d 'only the lines that match a Python regular expression'
complete -c shellsession -n '_shtab_shellsession_using output' -l bytes -x -d 'the bytes from A up to B'
complete -c shellsession -n '_shtab_shellsession_using output' -l max-chars -x -d 'how much to show at most'
complete -c shellsession -n '_shtab_shellsession_using output' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using output' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using output; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a restart -d 'give an agent a fresh bash'
complete -c shellsession -n '_shtab_shellsession_using restart' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using restart' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using restart' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using restart; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a kill -d 'close sessions, and end everything that runs in them'
complete -c shellsession -n '_shtab_shellsession_using kill' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using kill' -l all -d 'the sessions of all agents'
complete -c shellsession -n '_shtab_shellsession_using kill' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using kill' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using kill; and test $_shtab_shellsession_npos -ge 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose sessions'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a attach -d 'use an agent'"'"'s session yourself, at a prompt'
complete -c shellsession -n '_shtab_shellsession_using attach' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using attach' -l read-only -d 'see what runs, and type nothing'
complete -c shellsession -n '_shtab_shellsession_using attach' -l others -xka "wait refuse" -d 'the agent'"'"'s own calls wait until you leave'
complete -c shellsession -n '_shtab_shellsession_using attach' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using attach; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose session'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a forget -d 'delete what is recorded of agents without a session'
complete -c shellsession -n '_shtab_shellsession_using forget' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using forget' -l all -d 'the records of all agents without a session'
complete -c shellsession -n '_shtab_shellsession_using forget' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using forget; and test $_shtab_shellsession_npos -ge 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose records'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a log -d 'show who ran what, and how it ended'
complete -c shellsession -n '_shtab_shellsession_using log' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using log' -s s -l session -xka "(shellsession ls --names 2>/dev/null)" -d 'only the commands of this agent'
complete -c shellsession -n '_shtab_shellsession_using log' -s n -x -d 'the last N'
complete -c shellsession -n '_shtab_shellsession_using log' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using log' -l audit -xka "(__fish_complete_path (commandline -ct))" -d 'the log'
complete -c shellsession -n '_shtab_shellsession_using log' -l json -d 'print the lines as they were recorded'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a history -d 'list the commands of one agent'
complete -c shellsession -n '_shtab_shellsession_using history' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using history' -s n -x -d 'the last N'
complete -c shellsession -n '_shtab_shellsession_using history' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using history' -l audit -xka "(__fish_complete_path (commandline -ct))" -d 'the log'
complete -c shellsession -n '_shtab_shellsession_using history' -l json -d 'print the lines as they were recorded'
complete -c shellsession -n '_shtab_shellsession_using history; and test $_shtab_shellsession_npos -eq 0' -ka "(shellsession ls --names 2>/dev/null)" -d 'whose commands'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a status -d 'show the state of the daemon'
complete -c shellsession -n '_shtab_shellsession_using status' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using status' -l json -d 'print a JSON object'
complete -c shellsession -n '_shtab_shellsession_using status' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a doctor -d 'check this machine, and say how to fix what is missing'
complete -c shellsession -n '_shtab_shellsession_using doctor' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using doctor' -l json -d 'print a JSON object for each finding'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a serve -d 'run the daemon that holds the sessions'
complete -c shellsession -n '_shtab_shellsession_using serve' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using serve' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using serve' -l max-sessions -x -d 'at most N agents with a session'
complete -c shellsession -n '_shtab_shellsession_using serve' -l idle-ttl -x -d 'close a session that was idle for S seconds'
complete -c shellsession -n '_shtab_shellsession_using serve' -l patience -x -d 'when it stops, give running commands S seconds to end'
complete -c shellsession -n '_shtab_shellsession_using serve' -l lease -x -d 'end it and its sessions at once if no client renews its lease for S seconds'
complete -c shellsession -n '_shtab_shellsession_using serve' -l audit -xka "(__fish_complete_path (commandline -ct))" -d 'the audit log'
complete -c shellsession -n '_shtab_shellsession_using serve' -l log-level -xka "debug info warning error" -d 'the level of its own log'
complete -c shellsession -n '_shtab_shellsession_using serve' -l log-file -xka "(__fish_complete_path (commandline -ct))" -d 'its own log, 0600, rotated'
complete -c shellsession -n '_shtab_shellsession_using serve' -l detach -d 'return when it listens'
complete -c shellsession -n '_shtab_shellsession_using serve' -s C -l cwd -xka "(__fish_complete_directories)" -d 'where it starts'
complete -c shellsession -n '_shtab_shellsession_using serve' -l env -x -d 'a variable of its environment'
complete -c shellsession -n '_shtab_shellsession_using serve' -l sandbox -d 'confine it with bubblewrap'
complete -c shellsession -n '_shtab_shellsession_using serve' -l write -xka "(__fish_complete_directories)" -d 'what it can write'
complete -c shellsession -n '_shtab_shellsession_using serve' -l hide -xka "(__fish_complete_path (commandline -ct))" -d 'what it cannot see, such as ~/.ssh'
complete -c shellsession -n '_shtab_shellsession_using serve' -l missing-ok -d 'skip --hide paths that do not exist'
complete -c shellsession -n '_shtab_shellsession_using serve' -l network -d 'give it the host'"'"'s network'
complete -c shellsession -n '_shtab_shellsession_using serve' -l memory -x -d 'the memory of all its processes together, such as 512M'
complete -c shellsession -n '_shtab_shellsession_using serve' -l cpu -x -d 'its processor time'
complete -c shellsession -n '_shtab_shellsession_using serve' -l pass-env -x -d 'a variable of this environment that it gets, such as '"'"'AWS_*'"'"''
complete -c shellsession -n '_shtab_shellsession_using serve' -l deny -x -d 'a command that must not run, such as '"'"'git push'"'"''
complete -c shellsession -n '_shtab_shellsession_using serve' -l allow -x -d 'only such commands may run'
complete -c shellsession -n '_shtab_shellsession_using serve' -l redirect -x -d 'the only files that redirections may write, such as '"'"'/tmp/**'"'"''
complete -c shellsession -n '_shtab_shellsession_using serve' -l strict -d 'refuse what cannot be judged'
complete -c shellsession -n '_shtab_shellsession_using serve' -l redact -d 'mask keys, tokens and passwords of known forms'
complete -c shellsession -n '_shtab_shellsession_using serve' -l max-chars -x -d 'a result keeps N bytes of each stream, half from its start and half from its end'
complete -c shellsession -n '_shtab_shellsession_using serve' -l timeout -x -d 'how many seconds a command may run if its caller names no limit'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a bridge -d 'connect a client elsewhere to the daemon here (see --via)'
complete -c shellsession -n '_shtab_shellsession_using bridge' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using bridge' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a stop -d 'end the daemon and every session'
complete -c shellsession -n '_shtab_shellsession_using stop' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using stop' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a mcp -d 'serve a session'"'"'s verbs to MCP clients over stdio'
complete -c shellsession -n '_shtab_shellsession_using mcp' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l socket -xka "(__fish_complete_path (commandline -ct))" -d 'the daemon'"'"'s socket'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l via -x -d 'a program that leads to the daemon elsewhere, such as '"'"'ssh box'"'"''
complete -c shellsession -n '_shtab_shellsession_using mcp' -s s -l session -xka "(shellsession ls --names 2>/dev/null)" -d 'use this agent'"'"'s session, held by the daemon'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l timeout -x -d 'seconds that a command may run if the model names no limit'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l patience -x -d 'seconds that a call may take'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l max-chars -x -d 'the longest text that the model gets'
complete -c shellsession -n '_shtab_shellsession_using mcp' -s C -l cwd -xka "(__fish_complete_directories)" -d 'where it starts'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l env -x -d 'a variable of its environment'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l sandbox -d 'confine it with bubblewrap'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l write -xka "(__fish_complete_directories)" -d 'what it can write'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l hide -xka "(__fish_complete_path (commandline -ct))" -d 'what it cannot see, such as ~/.ssh'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l missing-ok -d 'skip --hide paths that do not exist'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l network -d 'give it the host'"'"'s network'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l memory -x -d 'the memory of all its processes together, such as 512M'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l cpu -x -d 'its processor time'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l pass-env -x -d 'a variable of this environment that it gets, such as '"'"'AWS_*'"'"''
complete -c shellsession -n '_shtab_shellsession_using mcp' -l deny -x -d 'a command that must not run, such as '"'"'git push'"'"''
complete -c shellsession -n '_shtab_shellsession_using mcp' -l allow -x -d 'only such commands may run'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l redirect -x -d 'the only files that redirections may write, such as '"'"'/tmp/**'"'"''
complete -c shellsession -n '_shtab_shellsession_using mcp' -l strict -d 'refuse what cannot be judged'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l redact -d 'mask keys, tokens and passwords of known forms'
complete -c shellsession -n '_shtab_shellsession_using mcp' -l confirm -d 'have the client ask its user before a command runs'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a agent -d 'give a task to a small agent, with bash if you allow it'
complete -c shellsession -n '_shtab_shellsession_using agent' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using agent' -l bash -d 'let it run bash commands, at your own risk'
complete -c shellsession -n '_shtab_shellsession_using agent' -l model -x -d 'the model'
complete -c shellsession -n '_shtab_shellsession_using; and test $_shtab_shellsession_npos -eq 0' -a completion -d 'print a script for completion in bash, zsh or fish'
complete -c shellsession -n '_shtab_shellsession_using completion' -s h -l help -d 'show this help message and exit'
complete -c shellsession -n '_shtab_shellsession_using completion; and test $_shtab_shellsession_npos -eq 0' -ka "bash zsh fish" -d 'bash, zsh or fish'
