// Stands for go-runner, the entry point of Kubernetes' own images: runs a command and copies its output to a file.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	file := flag.String("log-file", "", "file to append what the command says to")
	alsoStdout := flag.Bool("also-stdout", false, "print it as well")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("go-runner: no command to run")
	}

	output := []io.Writer{}
	if *file == "" || *alsoStdout {
		output = append(output, os.Stdout)
	}
	if *file != "" {
		opened, err := os.OpenFile(*file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatalf("go-runner: %v", err)
		}
		output = append(output, opened)
	}

	command := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	command.Stdout = io.MultiWriter(output...)
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		log.Fatalf("go-runner: %v", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for received := range signals {
			_ = command.Process.Signal(received)
		}
	}()
	var exited *exec.ExitError
	if err := command.Wait(); errors.As(err, &exited) {
		os.Exit(exited.ExitCode())
	} else if err != nil {
		log.Fatalf("go-runner: %v", err)
	}
}
