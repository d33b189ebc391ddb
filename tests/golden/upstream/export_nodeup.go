package nodeup

// EvaluateSpec completes the settings of kubelet and kube-proxy with values from the metadata service.
var EvaluateSpec = evaluateSpec
