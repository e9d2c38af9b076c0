# The hook of fish, 3.1 and later. @EXE@ is the program, quoted. It does what that
# of bash does; here a command substitution of builtins starts nothing, so the
# folder's own path is at hand.
if status is-interactive
function __majordomus_leave
	if set -q MAJORDOMUS_ENTERED; or set -q __majordomus_root
		set -l root "$__majordomus_root"
		set -q MAJORDOMUS_ENTERED; and set root "$MAJORDOMUS_ENTERED"
		if test "$MAJORDOMUS_ROOT" = "$root"
			set -e MAJORDOMUS_ROOT
			set -q MAJORDOMUS_WAS_ROOT; and set -gx MAJORDOMUS_ROOT $MAJORDOMUS_WAS_ROOT
		end
		if not set -q __majordomus_url; or test "$MAJORDOMUS_URL" = "$__majordomus_url"
			set -e MAJORDOMUS_URL
			set -q MAJORDOMUS_WAS_URL; and set -gx MAJORDOMUS_URL $MAJORDOMUS_WAS_URL
		end
		set -e MAJORDOMUS_ENTERED
		set -e MAJORDOMUS_WAS_ROOT
		set -e MAJORDOMUS_WAS_URL
	end
	set -e __majordomus_root
	set -e __majordomus_lease
	set -e __majordomus_seen
	set -e __majordomus_url
end
function __majordomus_read
	set -g __majordomus_now ''
	if set -q __majordomus_lease; and test -f $__majordomus_lease -a -r $__majordomus_lease
		read -z -g __majordomus_now <$__majordomus_lease 2>/dev/null
	end
end
function __majordomus_look
	set -l mark ''
	test -f .ai/manifest.yaml; and set mark m
	test -e .git; and set mark g$mark
	set -l word ''
	if test "$__majordomus_pwd" != "$mark:$PWD"
		set -g __majordomus_pwd "$mark:$PWD"
		set -l found ''
		set -l up (builtin pwd -P 2>/dev/null | string collect)
		set -l home (builtin realpath -- $HOME 2>/dev/null | string collect)
		while test -n "$up"
			if test -f $up/.ai/manifest.yaml
				set found $up
				break
			end
			if test $up = /
				break
			end
			if test -z "$found" -a -e $up/.git -a $up != "$home"
				set found $up
			end
			set up (string replace -r '/[^/]*$' '' -- $up | string collect)
			test -n "$up"; or set up /
		end
		if test -z "$found"
			__majordomus_leave
		else if test "$found" != "$__majordomus_root"
			set word enter
		end
	end
	if test -n "$word"; or set -q __majordomus_root
		__majordomus_read
		if test -z "$word" -a "$__majordomus_now" != "$__majordomus_seen"
			set word export
		end
		if test -n "$word"; and test -x @EXE@
			set -e __majordomus_seen
			@EXE@ env $word --shell fish | source
			set -g __majordomus_url "$MAJORDOMUS_URL"
			if not set -q __majordomus_seen; and set -q __majordomus_root
				__majordomus_read
				set -g __majordomus_seen $__majordomus_now
			end
		else if test "$word" = enter
			__majordomus_leave
		end
		set -e __majordomus_now
	else if set -q MAJORDOMUS_ENTERED
		__majordomus_leave
	end
end
# Last: direnv must neither take what we have set for what was there before it, nor
# put it back after we have left. What is told of an event is told in the order in
# which it was defined, so where direnv is not there yet, that is put off until
# everything is, and at that first prompt it goes first all the same.
function __majordomus_install
	function __majordomus_hook --on-event fish_prompt
		__majordomus_look
	end
end
if functions -q __direnv_export_eval
	__majordomus_install
else
	function __majordomus_first --on-event fish_prompt
		functions -e __majordomus_first
		functions -q __direnv_export_eval; and __direnv_export_eval
		__majordomus_install
		__majordomus_look
	end
end
end
