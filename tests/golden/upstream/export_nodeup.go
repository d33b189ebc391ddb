package nodeup

// EvaluateSpec asks the metadata service for what kubelet and kube-proxy are told of the machine.
var EvaluateSpec = evaluateSpec
