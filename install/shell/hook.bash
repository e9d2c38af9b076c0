# The hook of bash, 3.2 and later. @EXE@ is the program, quoted.
#
# Nothing below starts a process or a subshell before the line with eval. Paths
# are relative to the folder the shell is in, so that links in its name do not
# matter: the kernel goes upwards, and -ef tells whether two ways lead to one
# folder.
if [[ $- == *i* ]]; then
__majordomus_leave() {
	# What somebody else has set since, or put back before us as direnv does, stays.
	if [[ -n ${MAJORDOMUS_ENTERED+x} || -n ${__majordomus_root+x} ]]; then
		if [[ ${MAJORDOMUS_ROOT-} == "${MAJORDOMUS_ENTERED-${__majordomus_root-}}" ]]; then
			if [[ -n ${MAJORDOMUS_WAS_ROOT+x} ]]; then export MAJORDOMUS_ROOT="$MAJORDOMUS_WAS_ROOT"; else unset MAJORDOMUS_ROOT; fi
		fi
		if [[ ${MAJORDOMUS_URL-} == "${__majordomus_url-${MAJORDOMUS_URL-}}" ]]; then
			if [[ -n ${MAJORDOMUS_WAS_URL+x} ]]; then export MAJORDOMUS_URL="$MAJORDOMUS_WAS_URL"; else unset MAJORDOMUS_URL; fi
		fi
		unset MAJORDOMUS_ENTERED MAJORDOMUS_WAS_ROOT MAJORDOMUS_WAS_URL
	fi
	unset __majordomus_root __majordomus_lease __majordomus_seen __majordomus_url
}
__majordomus_read() {
	__majordomus_now=
	if [[ -f ${__majordomus_lease-} && -r $__majordomus_lease ]]; then
		# The status says that no NUL came before the end, which is as it should be.
		IFS= read -r -d '' -n 65536 __majordomus_now 2>/dev/null <"$__majordomus_lease" || :
	fi
}
__majordomus_hook() {
	local code=$? up=. found= word= mark=
	if [[ -f .ai/manifest.yaml ]]; then mark=m; fi
	if [[ -e .git ]]; then mark=g$mark; fi
	if [[ ${__majordomus_pwd-} != "$mark:$PWD" ]]; then
		__majordomus_pwd=$mark:$PWD
		# The nearest manifest; without any, the nearest .git, but for those of
		# the home and of the root folder.
		while [[ -d $up ]]; do
			if [[ -f $up/.ai/manifest.yaml ]]; then
				found=$up
				break
			fi
			if [[ $up -ef $up/.. ]]; then break; fi
			if [[ -z $found && -e $up/.git && ! $up -ef ${HOME-} ]]; then found=$up; fi
			up=$up/..
		done
		if [[ -z $found ]]; then
			__majordomus_leave
		elif [[ ! $found -ef ${__majordomus_root-} ]]; then
			word=enter
		fi
	fi
	if [[ -n $word || -n ${__majordomus_root-} ]]; then
		__majordomus_read
		if [[ -z $word && $__majordomus_now != "${__majordomus_seen-}" ]]; then word=export; fi
		if [[ -n $word && -x @EXE@ ]]; then
			unset __majordomus_seen
			eval "$(@EXE@ env "$word" --shell bash)"
			__majordomus_url=${MAJORDOMUS_URL-}
			if [[ -z ${__majordomus_seen+x} && -n ${__majordomus_root-} ]]; then
				__majordomus_read
				__majordomus_seen=$__majordomus_now
			fi
		elif [[ $word == enter ]]; then
			__majordomus_leave
		fi
		unset __majordomus_now
	elif [[ -n ${MAJORDOMUS_ENTERED+x} ]]; then
		# Of the shell that started this one, or put back by somebody else.
		__majordomus_leave
	fi
	return "$code"
}
__majordomus_install() {
	local one
	for one in "${PROMPT_COMMAND[@]-}" "${precmd_functions[@]-}"; do
		if [[ $one == *__majordomus_hook* ]]; then return 0; fi
	done
	if [[ -n ${bash_preexec_imported:-${__bp_imported:-}} ]]; then
		precmd_functions+=(__majordomus_hook)
	elif [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == "declare -a"* ]] && ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
		# Last: direnv, which puts itself first, must neither take what we have
		# set for what was there before it, nor put it back after we have left.
		PROMPT_COMMAND+=(__majordomus_hook)
	else
		# On a line of its own, whatever the one before ends with. Of an array,
		# shells before 5.1 run the first.
		PROMPT_COMMAND=${PROMPT_COMMAND:+"$PROMPT_COMMAND"$'\n'}__majordomus_hook
	fi
}
__majordomus_install
unset -f __majordomus_install
fi
