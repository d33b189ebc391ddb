package model

import "k8s.io/kops/upup/pkg/fi/nodeup/nodetasks"

// BootstrapCerts are the certificates that kops-controller is asked for.
func (c *NodeupModelContext) BootstrapCerts() map[string]*nodetasks.BootstrapCert {
	return c.bootstrapCerts
}
