"""Makes instances in moto's EC2, and prints their ids: one of the cluster, one of another cluster, and a stopped one.

Also prints the credentials that the role of nodes gives to the first instance, by moto's STS.
"""

import json
import sys

import boto3

endpoint, region, cluster, role = sys.argv[1:]


def client(service):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
    )


ec2 = client("ec2")


def run(owner, group):
    tags = [
        {"Key": "KubernetesCluster", "Value": owner},
        {"Key": "kops.k8s.io/instancegroup", "Value": group},
    ]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    answer = ec2.run_instances(
        ImageId=image,
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return answer["Instances"][0]["InstanceId"]


ids = {"nodes": run(cluster, "nodes"), "other": run("other.example.com", "nodes"), "stopped": run(cluster, "nodes")}
ec2.stop_instances(InstanceIds=[ids["stopped"]])
arn = f"arn:aws:iam::123456789012:role/{role}"
given = client("sts").assume_role(RoleArn=arn, RoleSessionName=ids["nodes"])["Credentials"]
credentials = {name: given[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")}
print(json.dumps({"ids": ids, "credentials": credentials}))
