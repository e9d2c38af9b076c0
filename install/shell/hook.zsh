# The hook of zsh, 5.0 and later. @EXE@ is the program, quoted. It does what that
# of bash does, in the same way.
if [[ -o interactive ]]; then
__majordomus_leave() {
	emulate -L zsh
	if (( ${+MAJORDOMUS_ENTERED} || ${+__majordomus_root} )); then
		if [[ ${MAJORDOMUS_ROOT-} == "${MAJORDOMUS_ENTERED-${__majordomus_root-}}" ]]; then
			if (( ${+MAJORDOMUS_WAS_ROOT} )); then export MAJORDOMUS_ROOT="$MAJORDOMUS_WAS_ROOT"; else unset MAJORDOMUS_ROOT; fi
		fi
		if [[ ${MAJORDOMUS_URL-} == "${__majordomus_url-${MAJORDOMUS_URL-}}" ]]; then
			if (( ${+MAJORDOMUS_WAS_URL} )); then export MAJORDOMUS_URL="$MAJORDOMUS_WAS_URL"; else unset MAJORDOMUS_URL; fi
		fi
		unset MAJORDOMUS_ENTERED MAJORDOMUS_WAS_ROOT MAJORDOMUS_WAS_URL
	fi
	unset __majordomus_root __majordomus_lease __majordomus_seen __majordomus_url
}
__majordomus_read() {
	emulate -L zsh
	typeset -g __majordomus_now=
	if [[ -f ${__majordomus_lease-} && -r $__majordomus_lease ]]; then
		# The status says that no NUL came before the end, which is as it should be.
		IFS= read -r -d '' __majordomus_now 2>/dev/null <"$__majordomus_lease" || :
	fi
}
__majordomus_hook() {
	local code=$? up=. found= word= mark=
	emulate -L zsh
	if [[ -f .ai/manifest.yaml ]]; then mark=m; fi
	if [[ -e .git ]]; then mark=g$mark; fi
	if [[ ${__majordomus_pwd-} != "$mark:$PWD" ]]; then
		typeset -g __majordomus_pwd=$mark:$PWD
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
			eval "$(@EXE@ env "$word" --shell zsh)"
			typeset -g __majordomus_url=${MAJORDOMUS_URL-}
			if (( ! ${+__majordomus_seen} )) && [[ -n ${__majordomus_root-} ]]; then
				__majordomus_read
				typeset -g __majordomus_seen=$__majordomus_now
			fi
		elif [[ $word == enter ]]; then
			__majordomus_leave
		fi
		unset __majordomus_now
	elif (( ${+MAJORDOMUS_ENTERED} )); then
		__majordomus_leave
	fi
	return "$code"
}
autoload -Uz add-zsh-hook
add-zsh-hook precmd __majordomus_hook
fi
