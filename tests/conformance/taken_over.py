"""The nodes that `take-over` takes over, and the changes that their plans may contain."""

# Each role, family of distributions, cloud and network plugin is in at least one case.
CASES = [
    "minimal-aws--master-us-test-1a--ubuntu2604-amd64",
    "minimal-aws--nodes--debian12-amd64",
    "complex--master-us-test-1a--rocky9-amd64",
    "complex--nodes--flatcar-amd64",
    "apiservernodes--apiserver--ubuntu2604-amd64",
    "privatecalico--master-us-test-1a--amzn2023-amd64",
    "privatecilium--nodes--debian13-amd64",
    "minimal_gce--master-us-test1-a--debian13-amd64",
    "minimal_hetzner--nodes-fsn1--ubuntu2604-amd64",
    "minimal-ipv6--master-us-test-1a--ubuntu2404-amd64",
    "nvidia--nodes--rhel9-amd64",
    "privatecalico--nodes--rocky10-amd64",
    "many-addons--nodes--ubuntu2604-amd64",
    "containerd-custom--nodes--ubuntu2404-arm64",
    "many-addons-gce--master-us-test1-a--ubuntu2604-amd64",
]

# The cases of each kOps release. They include protokube with and without gossip, the oldest and the newest Kubernetes, containerd
# 1, the oldest distributions, and files that only older releases write.
CASES_OF_RELEASE = {
    "1.36": [
        "gossip-aws--master-us-test-1a--ubuntu2404-amd64",
        "minimal_azure--control-plane-eastus-1--ubuntu2404-amd64",
        "zz-amazonvpc--nodes--debian12-amd64",
        "zz-kubenet--nodes--ubuntu2204-amd64",
        "zz-oldest--nodes--debian11-amd64",
    ],
    "1.35": [
        "minimal_gossip--master-us-test-1a--flatcar-amd64",
        "minimal_openstack--master-us-test1-a--ubuntu2204-amd64",
        "zz-amazonvpc--nodes--amzn2023-amd64",
        "zz-containerd1--nodes--ubuntu2204-amd64",
        "zz-newest--master-us-test-1a--ubuntu2404-amd64",
    ],
    "1.34": [
        "minimal_gossip--nodes--amzn2-amd64",
        "zz-kubenet--master-us-test-1a--debian12-amd64",
        "zz-oldest--master-us-test-1a--amzn2-amd64",
        "zz-oldest--nodes--ubuntu2004-amd64",
    ],
}

# Cases that are tested twice. In the first test, each keyset keeps only the key that signs. In the second test, it keeps all its keys.
WITH_NEXT = [
    "minimal-aws--master-us-test-1a--ubuntu2604-amd64",
    "privatecalico--master-us-test-1a--amzn2023-amd64",
    "apiservernodes--apiserver--ubuntu2604-amd64",
]

# The os-release file of each family of distributions. The parts of the version number replace `{}`.
OS_RELEASE = {
    "ubuntu": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="{}.{}"\n',
    "debian": 'ID=debian\nVERSION_ID="{}{}"\n',
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="{}{}"\n',
    "rhel": 'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="{}{}"\n',
    "amzn": 'ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="{}{}"\n',
    "flatcar": 'ID=flatcar\nID_LIKE=coreos\nVERSION_ID=1.2.3{}{}\n',
}

# Changes that a plan of a take-over may contain. They restart nothing.
DIFFERENCES = [
    # nodeup loads kernel modules, but does not configure them for the next boot.
    "kernel-module *: make",
    # nodeup runs at boot, and mounts a volume in each run. The agent lets systemd mount the volume at boot.
    "mount *: set atBoot",
    # In the text of this license, nodeup writes an https address. The agent writes the official http address.
    "file /usr/share/doc/containerd/apache.txt: write",
    # Upstream lets all users read this file, which can contain tokens of clouds and stores.
    "file /etc/sysconfig/protokube: set mode",
    # Upstream lets all users read these files, which can contain OpenStack's login.
    "file /etc/kubernetes/*cloud.config: set mode",
    "file /etc/kubernetes/manifests/kops-channels.manifest: set mode",
    # Upstream passes a repository's key to apt-key, so the key is valid for all repositories. The agent limits the key to its repository.
    "package-source *: set *",
]
