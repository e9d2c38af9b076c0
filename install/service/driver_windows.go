package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"
	"unsafe"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// scm is Windows' service control manager.
type scm struct {
	password func(account string) (string, error)
	log      *slog.Logger
}

func newDriver(cfg Config) driver { return &scm{password: cfg.Password, log: cfg.Log} }

func (d *scm) file(string) string { return "" }

func (d *scm) text(s Spec) (string, error) {
	account, sid, err := whoami()
	if err != nil {
		return "", err
	}
	return forWindows(s, account, sid).String(), nil
}

// whoami is this process's account, as services are told it and as access is.
func whoami() (account, sid string, err error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", "", fmt.Errorf("asking whose process this is: %w", err)
	}
	name, domain, _, err := user.User.Sid.LookupAccount("")
	if err != nil {
		return "", "", fmt.Errorf("asking whose process this is: %w", err)
	}
	return domain + `\` + name, user.User.Sid.String(), nil
}

func (d *scm) available(context.Context) error {
	if d.password == nil || !windows.GetCurrentProcessToken().IsElevated() {
		return fmt.Errorf("%w: services of Windows are the machine's, and only an administrator changes them", ErrNoManager)
	}
	return nil
}

// of is the library's view of a service, with what all but an install needs.
func of(name string) (service.Service, error) {
	return service.New(nothing{}, &service.Config{Name: name})
}

type nothing struct{}

func (nothing) Start(service.Service) error { return nil }
func (nothing) Stop(service.Service) error  { return nil }

func (d *scm) installed(name string) (bool, error) {
	s, err := of(name)
	if err != nil {
		return false, err
	}
	switch _, err := s.Status(); {
	case err == nil:
		return true, nil
	case errors.Is(err, service.ErrNotInstalled):
		return false, nil
	default:
		return false, fmt.Errorf("looking for the service: %w", err)
	}
}

// names are none: only the record of what is installed knows whose they are.
func (d *scm) names() ([]string, error) { return nil, nil }

func (d *scm) install(ctx context.Context, s Spec) (changed bool, err error) {
	if err := d.available(ctx); err != nil {
		return false, err
	}
	account, sid, err := whoami()
	if err != nil {
		return false, err
	}
	w := forWindows(s, account, sid)
	was, err := d.installed(w.Name)
	if err != nil {
		return false, err
	}
	if was {
		if same, err := w.installed(); err != nil || same {
			return false, err
		}
	}
	password, err := d.password(account)
	if err != nil {
		return false, fmt.Errorf("asking for the password of %s: %w", account, err)
	}
	if was {
		if err := d.uninstall(ctx, w.Name); err != nil {
			return false, err
		}
	}
	if err := allowServices(sid); err != nil {
		return false, fmt.Errorf("letting %s log on as a service: %w", account, err)
	}
	// No EnvVars: the library leaves them in the registry when it fails after
	// them, and Windows gives a service its account's environment.
	made, err := service.New(nothing{}, &service.Config{
		Name: w.Name, DisplayName: w.Display, Description: w.Description, UserName: w.Account,
		Executable: w.Executable, Arguments: w.Arguments,
		Option: service.KeyValue{
			"Password": password, service.StartType: w.Start,
			service.OnFailure: w.OnFailure, service.OnFailureDelayDuration: w.Delay, service.OnFailureResetPeriod: w.Reset,
		},
	})
	if err != nil {
		return false, err
	}
	if err := made.Install(); err != nil {
		// It may fail when the service is there already.
		return false, errors.Join(fmt.Errorf("installing the service: %w", err), d.undo(w.Name))
	}
	// A server that says it has failed is started again like one that crashed.
	if err := opened(w.Name, func(s *mgr.Service) error { return s.SetRecoveryActionsOnNonCrashFailures(true) }); err != nil {
		d.log.Warn("a failed service will not be started again", "err", err)
	}
	if err := w.allow(); err != nil {
		return false, errors.Join(fmt.Errorf("letting %s start the service: %w", account, err), d.undo(w.Name))
	}
	return true, nil
}

func (d *scm) undo(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if is, err := d.installed(name); err != nil || !is {
		return err
	}
	return d.uninstall(ctx, name)
}

// installed reports whether what is installed runs the same.
func (w windowsService) installed() (bool, error) {
	var line string
	err := opened(w.Name, func(s *mgr.Service) error {
		// The package's own question asks for much more, which not every
		// Windows answers.
		var size uint32
		windows.QueryServiceConfig(s.Handle, nil, 0, &size) // ignore error: this one asks how much there is
		b := make([]byte, max(int(size), int(unsafe.Sizeof(windows.QUERY_SERVICE_CONFIG{}))))
		cfg := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&b[0]))
		if err := windows.QueryServiceConfig(s.Handle, cfg, uint32(len(b)), &size); err != nil {
			return err
		}
		line = windows.UTF16PtrToString(cfg.BinaryPathName)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("reading the service: %w", err)
	}
	want := syscall.EscapeArg(w.Executable)
	for _, a := range w.Arguments {
		want += " " + syscall.EscapeArg(a)
	}
	return line == want, nil
}

// opened does something with a service, as only an administrator can.
func opened(name string, do func(*mgr.Service) error) error {
	m, err := mgr.Connect()
	if err != nil {
		return err
	}
	defer m.Disconnect() // ignore error: it is done with
	s, err := m.OpenService(name)
	if err != nil {
		return err
	}
	defer s.Close() // ignore error: as above
	return do(s)
}

// allow says who may start the service.
func (w windowsService) allow() error {
	sd, err := windows.SecurityDescriptorFromString(w.Access)
	if err != nil {
		return err
	}
	dacl, _, err := sd.DACL()
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(w.Name, windows.SE_SERVICE, windows.DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
}

// allowServices gives an account the right to log on as a service, which the
// manager's own window gives silently and its interface does not.
func allowServices(sid string) error {
	user, err := windows.StringToSid(sid)
	if err != nil {
		return err
	}
	right, err := windows.NewNTUnicodeString("SeServiceLogonRight")
	if err != nil {
		return err
	}
	advapi := windows.NewLazySystemDLL("advapi32.dll")
	const createAccount, lookupNames = 0x10, 0x800
	var policy windows.Handle
	attributes := windows.OBJECT_ATTRIBUTES{Length: uint32(unsafe.Sizeof(windows.OBJECT_ATTRIBUTES{}))}
	status, _, _ := advapi.NewProc("LsaOpenPolicy").Call(0, uintptr(unsafe.Pointer(&attributes)), createAccount|lookupNames, uintptr(unsafe.Pointer(&policy)))
	if status != 0 {
		return windows.NTStatus(status).Errno()
	}
	defer advapi.NewProc("LsaClose").Call(uintptr(policy)) // ignore error: ours
	status, _, _ = advapi.NewProc("LsaAddAccountRights").Call(uintptr(policy), uintptr(unsafe.Pointer(user)), uintptr(unsafe.Pointer(right)), 1)
	if status != 0 {
		return windows.NTStatus(status).Errno()
	}
	return nil
}

func (d *scm) uninstall(ctx context.Context, name string) error {
	if is, err := d.installed(name); err != nil || !is {
		return err
	}
	if err := d.available(ctx); err != nil {
		return err
	}
	if err := stop(ctx, name); err != nil {
		d.log.Warn("stopping the service", "err", err)
	}
	s, err := of(name)
	if err != nil {
		return err
	}
	if err := s.Uninstall(); err != nil {
		return fmt.Errorf("removing the service: %w", err)
	}
	// It is gone when the last who looks at it has closed it.
	return await(ctx, func() bool { is, err := d.installed(name); return err == nil && !is }, func() error { return nil })
}

// stop stops a service. The library's own waits for ever for one that hangs.
func stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	return opened(name, func(s *mgr.Service) error {
		status, err := s.Control(svc.Stop)
		if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
			return nil
		}
		if err != nil {
			return err
		}
		return await(ctx, func() bool {
			if now, err := s.Query(); err == nil {
				status = now
			}
			return status.State == svc.Stopped
		}, func() error { return nil })
	})
}

func (d *scm) start(ctx context.Context, name string, ready func() bool) error {
	s, err := of(name)
	if err != nil {
		return err
	}
	// Windows waits for a process that does not say it is a service for longer
	// than anybody here: then this goroutine is left to it.
	asked := make(chan error, 1)
	go func() { asked <- s.Start() }()
	select {
	case err = <-asked:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return fmt.Errorf("starting the service: %w", err)
	}
	began := time.Now()
	return await(ctx, ready, func() error {
		if now := d.status(ctx, name); now.State != "running" && time.Since(began) > time.Second {
			return fmt.Errorf("starting the service: it is %s%s", now.State, because(now.Reason))
		}
		return nil
	})
}

func (d *scm) status(_ context.Context, name string) Status {
	s, err := of(name)
	if err == nil {
		var is service.Status
		if is, err = s.Status(); err == nil {
			if is == service.StatusRunning {
				return Status{State: "running"}
			}
			return Status{State: "stopped"}
		}
	}
	return Status{State: "unknown", Reason: err.Error()}
}

// Serve runs a server that a service manager has started: ctx ends when that
// wants it to. Anywhere else it runs it as it is. The library's own way to be a
// service knows no service that ends by itself: to Windows that is a crash.
func Serve(ctx context.Context, name string, serve func(context.Context) error) error {
	p := &program{ctx: ctx, serve: serve}
	err := svc.Run(name, p)
	if errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) {
		return serve(ctx) // somebody has typed it
	}
	return errors.Join(err, p.err)
}

// program is a server as Windows starts and stops it.
type program struct {
	ctx   context.Context // of the process's life
	serve func(context.Context) error
	err   error // what serve returned
}

// Execute is svc.Handler's.
func (p *program) Execute(_ []string, requests <-chan svc.ChangeRequest, says chan<- svc.Status) (specific bool, code uint32) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx) }() // waited for below
	says <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case p.err = <-ended:
			if p.err != nil {
				return true, 1
			}
			return false, 0
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				says <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				says <- svc.Status{State: svc.StopPending, WaitHint: uint32(stopLimit.Milliseconds())}
				cancel()
			}
		}
	}
}
