package model

import "k8s.io/kops/upup/pkg/fi/nodeup/nodetasks"

// BootstrapCerts returns the certificates that the node requests from kops-controller.
func (c *NodeupModelContext) BootstrapCerts() map[string]*nodetasks.BootstrapCert {
	return c.bootstrapCerts
}
