# An image of EC2 with the package kops-agent, for Packer 1.6.6 or newer: docs/install/golden-image.md.
#
#   packer validate -var package=kops-agent_0.1.0-1_amd64.deb packaging/golden-image/kops-agent.pkr.hcl
#
# Packer 1.7 and newer have the builder amazon-ebs as a plugin: `packer plugins install github.com/hashicorp/amazon`.

variable "package" {
  type        = string
  description = "The .deb or .rpm of kops-agent, on the machine that runs Packer."
}

variable "source_ami" {
  type        = string
  description = "The image to start from. Empty: the newest Debian 13 of Debian's own account."
  default     = ""
}

variable "ssh_username" {
  type        = string
  description = "The login user of the source image: admin on Debian, ubuntu on Ubuntu, ec2-user on Amazon Linux and RHEL."
  default     = "admin"
}

variable "instance_type" {
  type    = string
  default = "t3.small"
}

variable "region" {
  type    = string
  default = "eu-west-1"
}

variable "kops_managed" {
  type        = bool
  description = "Whether kOps' own user-data starts the node. The unit of the package is masked then."
  default     = false
}

source "amazon-ebs" "kops-agent" {
  region        = var.region
  instance_type = var.instance_type
  ssh_username  = var.ssh_username
  ami_name      = "kops-agent-{{timestamp}}"
  source_ami    = var.source_ami

  source_ami_filter {
    filters = {
      name                = "debian-13-amd64-*"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = ["136693071363"]
    most_recent = true
  }
}

build {
  sources = ["source.amazon-ebs.kops-agent"]

  provisioner "file" {
    source      = var.package
    destination = "/tmp/${basename(var.package)}"
  }

  provisioner "shell" {
    script          = "packaging/golden-image/provision"
    execute_command = "sudo sh '{{ .Path }}' ${var.kops_managed ? "--kops-managed" : ""} '/tmp/${basename(var.package)}'"
  }
  provisioner "shell" {
    inline = ["rm '/tmp/${basename(var.package)}'"]
  }
}
