module kops-agent/tests/go-client

go 1.24.0
