// Command golden prints the tasks of kOps' own nodeup for a machine, in the form of the conformance corpus. It is built
// within a checkout of kOps, together with export_model.go and export_nodeup.go. Run it where /etc, the host name and the
// metadata service belong to the machine.
//
// usage: golden FOLDER, with FOLDER/{kube_env.yaml,nodeupconfig.yaml,keysets.json,machine.json}
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"k8s.io/kops/nodeup/pkg/model"
	"k8s.io/kops/nodeup/pkg/model/networking"
	"k8s.io/kops/pkg/apis/nodeup"
	"k8s.io/kops/pkg/pki"
	"k8s.io/kops/upup/pkg/fi"
	fnodeup "k8s.io/kops/upup/pkg/fi/nodeup"
	"k8s.io/kops/upup/pkg/fi/nodeup/nodetasks"
	"k8s.io/kops/upup/pkg/fi/utils"
	"k8s.io/kops/util/pkg/architectures"
	"k8s.io/kops/util/pkg/distributions"
	"k8s.io/kops/util/pkg/vfs"
)

// machine has the inputs that nodeup does not read by itself.
type machine struct {
	Arch    architectures.Architecture
	Secrets []string
	Store   string
}

// keys is the key store: each keyset has one item.
type keys map[string]struct{ ID, Certificate, Key string }

func (k keys) FindKeyset(_ context.Context, name string) (*fi.Keyset, error) {
	found, ok := k[name]
	if !ok {
		return nil, nil
	}
	certificate, err := pki.ParsePEMCertificate([]byte(found.Certificate))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, err := pki.ParsePEMPrivateKey([]byte(found.Key))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	item := &fi.KeysetItem{Id: found.ID, Certificate: certificate, PrivateKey: key}
	return &fi.Keyset{Items: map[string]*fi.KeysetItem{found.ID: item}, Primary: item}, nil
}

// secrets is the secret store: the content of each secret is its own name.
type secrets []string

func (s secrets) FindSecret(id string) (*fi.Secret, error) {
	for _, name := range s {
		if name == id {
			return &fi.Secret{Data: []byte("secret-" + id)}, nil
		}
	}
	return nil, nil
}

func (s secrets) Secret(id string) (*fi.Secret, error) {
	secret, err := s.FindSecret(id)
	if err == nil && secret == nil {
		err = fmt.Errorf("no secret %s", id)
	}
	return secret, err
}

func main() {
	out, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(1)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}

func run(folder string) ([]any, error) {
	var boot nodeup.BootConfig
	var config nodeup.Config
	var known keys
	var here machine
	for file, into := range map[string]any{"kube_env.yaml": &boot, "nodeupconfig.yaml": &config, "keysets.json": &known, "machine.json": &here} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		if err := utils.YamlUnmarshal(text, into); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if boot.ConfigServer != nil {
		config.CAs[fi.CertificateIDCA] = boot.ConfigServer.CACertificates
	}
	if err := fnodeup.EvaluateSpec(&config, boot.CloudProvider, ""); err != nil {
		return nil, err
	}
	distribution, err := distributions.FindDistribution("/")
	if err != nil {
		return nil, err
	}
	base, err := vfs.Context.BuildVfsPath(here.Store)
	if err != nil {
		return nil, err
	}
	store := fi.NewAssetStore("/nonexistent")
	for _, asset := range config.Assets[here.Arch] {
		add(store, asset)
	}
	c := &model.NodeupModelContext{
		Architecture: here.Arch,
		Assets:       store,
		ConfigBase:   base,
		Distribution: distribution,
		BootConfig:   &boot,
		NodeupConfig: &config,
		KeyStore:     known,
		SecretStore:  secrets(here.Secrets),
	}
	if err := c.Init(); err != nil {
		return nil, err
	}
	if boot.CloudProvider == "openstack" && config.NvidiaGPU != nil && fi.ValueOf(config.NvidiaGPU.Enabled) {
		c.GPUVendor = architectures.GPUVendorNvidia
	}
	loader := &fnodeup.Loader{Builders: builders(c)}
	tasks, err := loader.Build()
	if err != nil {
		return nil, err
	}
	bootstrap := map[fi.Resource]map[string]string{}
	for name, cert := range c.BootstrapCerts() {
		bootstrap[cert.Cert] = map[string]string{"bootstrapCert": name, "part": "cert"}
		bootstrap[cert.Key] = map[string]string{"bootstrapCert": name, "part": "key"}
	}
	names := make([]string, 0, len(tasks))
	for name := range tasks {
		names = append(names, name)
	}
	sort.Strings(names)
	var out []any
	for _, name := range names {
		kind, _, _ := strings.Cut(name, "/")
		task, err := encoded(tasks[name], bootstrap)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, map[string]any{"key": name, "kind": kind, "task": task})
	}
	return out, nil
}

// builders returns the builders of Run in upup/pkg/fi/nodeup/command.go, in the same order. Two builders are left out,
// because they act while they decide: the builder of volumes formats disks, and the bootstrap client asks kops-controller.
func builders(c *model.NodeupModelContext) []fi.NodeupModelBuilder {
	return []fi.NodeupModelBuilder{
		&model.DiscoveryService{NodeupModelContext: c}, &model.EtcHostsBuilder{NodeupModelContext: c}, &model.NTPBuilder{NodeupModelContext: c},
		&model.DirectoryBuilder{NodeupModelContext: c}, &model.UpdateServiceBuilder{NodeupModelContext: c},
		&model.ContainerdBuilder{NodeupModelContext: c}, &model.ChannelsBuilder{NodeupModelContext: c}, &model.CloudConfigBuilder{NodeupModelContext: c},
		&model.FileAssetsBuilder{NodeupModelContext: c}, &model.HookBuilder{NodeupModelContext: c}, &model.KubeletBuilder{NodeupModelContext: c},
		&model.KubectlBuilder{NodeupModelContext: c}, &model.LogrotateBuilder{NodeupModelContext: c}, &model.ManifestsBuilder{NodeupModelContext: c},
		&model.PackagesBuilder{NodeupModelContext: c}, &model.NvidiaBuilder{NodeupModelContext: c}, &model.GVisorBuilder{NodeupModelContext: c},
		&model.SecretBuilder{NodeupModelContext: c}, &model.FirewallBuilder{NodeupModelContext: c}, &model.SysctlBuilder{NodeupModelContext: c},
		&model.KubeAPIServerBuilder{NodeupModelContext: c}, &model.KubeControllerManagerBuilder{NodeupModelContext: c}, &model.KubeSchedulerBuilder{NodeupModelContext: c},
		&model.EtcdManagerTLSBuilder{NodeupModelContext: c}, &model.KubeProxyBuilder{NodeupModelContext: c}, &model.KopsControllerBuilder{NodeupModelContext: c},
		&model.WarmPoolBuilder{NodeupModelContext: c}, &model.PrefixBuilder{NodeupModelContext: c}, &model.NerdctlBuilder{NodeupModelContext: c},
		&model.CrictlBuilder{NodeupModelContext: c}, &model.AzureBuilder{NodeupModelContext: c}, &model.LinodeBuilder{NodeupModelContext: c},
		&networking.CommonBuilder{NodeupModelContext: c}, &networking.CalicoBuilder{NodeupModelContext: c}, &networking.CiliumBuilder{NodeupModelContext: c},
		&networking.KindnetBuilder{NodeupModelContext: c}, &networking.AmazonVPCRoutedENIBuilder{NodeupModelContext: c}, &networking.KuberouterBuilder{NodeupModelContext: c},
	}
}

// add puts a download into the store, with the members of the real archive of this name.
func add(store *fi.AssetStore, asset string) {
	url := strings.Split(asset[strings.Index(asset, "@")+1:], ",")[0]
	base := path.Base(url)
	store.AddForTest(base, url, "")
	var members []string
	switch {
	case strings.HasPrefix(base, "cni-plugins"):
		for _, name := range strings.Fields("bandwidth bridge dhcp dummy firewall host-device host-local ipvlan loopback macvlan portmap ptp sbr static tap tuning vlan vrf") {
			members = append(members, "./"+name)
		}
	case strings.HasPrefix(base, "containerd-"):
		for _, name := range strings.Fields("containerd containerd-shim-runc-v2 containerd-stress ctr") {
			members = append(members, "bin/"+name)
		}
	case strings.HasPrefix(base, "nerdctl"):
		members = []string{"nerdctl"}
	case strings.HasPrefix(base, "crictl"):
		members = []string{"crictl"}
	}
	for _, member := range members {
		store.AddForTest(path.Base(member), member, "")
	}
}

func encoded(task fi.NodeupTask, bootstrap map[fi.Resource]map[string]string) (any, error) {
	switch t := task.(type) {
	case *nodetasks.File:
		contents, err := resource(t.Contents, bootstrap)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"path": t.Path, "type": t.Type, "mode": t.Mode, "owner": t.Owner, "group": t.Group, "symlink": t.Symlink,
			"ifNotExists": t.IfNotExists, "onChangeExecute": t.OnChangeExecute, "contents": contents,
		}, nil
	case *nodetasks.KubeConfig:
		out := map[string]any{"Name": t.Name, "ServerURL": t.ServerURL}
		for part, of := range map[string]fi.Resource{"Cert": t.Cert, "Key": t.Key, "CA": t.CA} {
			var err error
			if out[part], err = resource(of, bootstrap); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *nodetasks.IssueCert:
		return map[string]any{
			"Name": t.Name, "signer": t.Signer, "keypairID": t.KeypairID, "type": t.Type, "alternateNames": t.AlternateNames,
			"includeRootCertificate": t.IncludeRootCertificate,
			"subject":                map[string]any{"CommonName": t.Subject.CommonName, "Organization": t.Subject.Organization},
		}, nil
	default:
		return task, nil
	}
}

func resource(r fi.Resource, bootstrap map[fi.Resource]map[string]string) (any, error) {
	if r == nil {
		return nil, nil
	}
	if of, ok := bootstrap[r]; ok {
		return map[string]any{"task": of}, nil
	}
	if dependent, ok := r.(*fi.NodeupTaskDependentResource); ok {
		task, err := encoded(dependent.Task, bootstrap)
		return map[string]any{"task": task}, err
	}
	if _, ok := r.(fi.HasSource); ok {
		return r, nil
	}
	reader, err := r.Open()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(reader)
	return string(text), err
}
