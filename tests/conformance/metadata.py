"""Stand-ins for the cloud of a machine that is made of namespaces: its metadata service, and EC2."""

import http.server
import json
import socketserver
import threading
import urllib.parse

import yaml

METADATA = "169.254.169.254"
# The addresses of metadata services that are not at 169.254.169.254.
METADATA_OF = {"scaleway": "169.254.42.42"}


def metadata_of_aws(aws):
    """Answers below /latest/meta-data/, by path."""
    return {
        "instance-id": aws["instanceID"],
        "instance-type": aws["instanceType"],
        "placement/region": aws["region"],
        "placement/availability-zone": aws["availabilityZone"],
        "local-ipv4": aws.get("localIPv4"),
        "public-ipv4": aws.get("publicIPv4"),
        "ipv6": aws.get("ipv6"),
        "local-hostname": aws.get("localHostname"),
        "mac": aws["mac"],
        f"network/interfaces/macs/{aws['mac']}/ipv6-prefix": aws.get("ipv6Prefix"),
        "autoscaling/target-lifecycle-state": aws.get("targetLifecycleState"),
        "iam/security-credentials": "nodes",
        "iam/security-credentials/": "nodes",
        "iam/security-credentials/nodes": json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": "2026-01-01T00:00:00Z",
                "Expiration": "2099-01-01T00:00:00Z",
                "AccessKeyId": "AKIDEXAMPLE",
                "SecretAccessKey": "secret",
                "Token": "session",
            }
        ),
    }


def metadata_of_gce(gce):
    """Answers below /computeMetadata/v1/, by path. The facts of the corpus have neither name nor zone."""
    return {
        "instance/hostname": gce["hostname"],
        "project/project-id": gce["project"],
        "instance/name": gce.get("name") or gce["hostname"].split(".")[0],
        "instance/zone": "projects/1234/zones/" + (gce.get("zone") or "us-test1-a"),
    }


def metadata_of_hetzner(hetzner):
    """Answers below /hetzner/v1/metadata/, by path."""
    networks = [{"ip": hetzner["privateIPv4"], "interface_num": 1, "network_id": 1}] if hetzner.get("privateIPv4") else []
    return {"instance-id": str(hetzner["instanceID"]), "private-networks": yaml.safe_dump(networks)}


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, status, text="", **headers):
        body = text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()

    def respond_from(self, answers, prefix):
        path = urllib.parse.urlparse(self.path).path
        answer = answers.get(path.removeprefix(prefix)) if path.startswith(prefix) else None
        self.respond(200, answer) if answer else self.respond(404)


def metadata_service(cloud, facts):
    """Returns a handler that answers as the metadata service of a cloud, and rejects what that service rejects."""

    class Aws(Answering):
        answers = metadata_of_aws(facts) if cloud == "aws" else {}

        def do_PUT(self):
            seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            if self.path != "/latest/api/token" or not seconds:
                return self.respond(400)
            self.respond(200, "the-token", X_aws_ec2_metadata_token_ttl_seconds=seconds)

        def do_GET(self):
            if self.headers.get("X-aws-ec2-metadata-token") != "the-token":
                return self.respond(401)
            self.respond_from(self.answers, "/latest/meta-data/")

    class Gce(Answering):
        answers = metadata_of_gce(facts) if cloud == "gce" else {}

        def do_GET(self):
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.respond(403)
            self.respond_from(self.answers, "/computeMetadata/v1/")

    class Hetzner(Answering):
        answers = metadata_of_hetzner(facts) if cloud == "hetzner" else {}

        def do_GET(self):
            self.respond_from(self.answers, "/hetzner/v1/metadata/")

    class Openstack(Answering):
        def do_GET(self):
            meta_data = json.dumps({"uuid": facts.get("serverID"), "name": "server-1", "meta": {}})
            answers = {"latest/meta-data/local-ipv4": facts.get("localIPv4"), "openstack/latest/meta_data.json": meta_data}
            # kOps' nodeup sends a double slash. Nova treats a double slash as one slash.
            self.path = self.path.replace("//", "/")
            self.respond_from(answers, "/")

    class DigitalOcean(Answering):
        def do_GET(self):
            self.respond_from({"0/ipv4/address": facts.get("privateIPv4")}, "/metadata/v1/interfaces/private/")

    class Azure(Answering):
        def do_GET(self):
            # kops-agent sends "true", kOps' nodeup sends "True".
            if self.headers.get("Metadata", "").lower() != "true":
                return self.respond(400)
            compute = json.dumps({"resourceId": facts.get("resourceID"), "vmId": "2"})
            self.respond_from({"compute": compute}, "/metadata/instance/")

    class Linode(Answering):
        def do_PUT(self):
            is_asked = self.path == "/v1/token" and self.headers.get("Metadata-Token-Expiry-Seconds")
            self.respond(200, "the-token") if is_asked else self.respond(400)

        def do_GET(self):
            if self.headers.get("Metadata-Token") != "the-token":
                return self.respond(401)
            self.respond_from({"instance": f"id: {facts.get('id')}\nlabel: {facts.get('label')}\ntype: g6\n"}, "/v1/")

    class Scaleway(Answering):
        def do_GET(self):
            if urllib.parse.urlparse(self.path).query != "format=json":
                return self.respond(400)
            server = {"id": facts.get("serverID"), "location": {"zone_id": facts.get("zone")}, "ssh_public_keys": []}
            self.respond_from({"conf": json.dumps(server)}, "/")

    services = {"aws": Aws, "gce": Gce, "hetzner": Hetzner, "openstack": Openstack, "azure": Azure, "linode": Linode}
    return {**services, "digitalOcean": DigitalOcean, "scaleway": Scaleway}[cloud]


def ec2(facts):
    """Returns a handler that answers as EC2 about the type of this instance."""

    class Ec2(Answering):
        def do_POST(self):
            form = dict(urllib.parse.parse_qsl(self.body()))
            if "Credential=AKIDEXAMPLE/" not in self.headers.get("Authorization", ""):
                return self.refuse(401, "AuthFailure")
            if form.get("Action") != "DescribeInstanceTypes":
                return self.refuse(403, "UnauthorizedOperation")
            if form.get("InstanceType.1") != facts["instanceType"]:
                return self.refuse(400, "InvalidInstanceType")
            limits = facts["networkInterfaces"]
            self.respond(
                200,
                "<DescribeInstanceTypesResponse><instanceTypeSet><item>"
                f"<instanceType>{facts['instanceType']}</instanceType><networkInfo>"
                f"<maximumNetworkInterfaces>{limits['max']}</maximumNetworkInterfaces>"
                f"<ipv4AddressesPerInterface>{limits['ipv4PerInterface']}</ipv4AddressesPerInterface></networkInfo>"
                + ("<gpuInfo/>" if facts["gpu"] else "")
                + "</item></instanceTypeSet></DescribeInstanceTypesResponse>",
            )

        def refuse(self, status, code):
            self.respond(
                status, f"<Response><Errors><Error><Code>{code}</Code><Message/></Error></Errors></Response>"
            )

    return Ec2


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):  # without asking DNS for its own name
        socketserver.TCPServer.server_bind(self)


def serve(address, handler):
    server = Server(address, handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address
