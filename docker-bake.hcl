# Every group's image with one command, for those who have buildx:
#
#   docker buildx bake                      all groups
#   docker buildx bake tabular              one
#   REGISTRY=registry.example/team TAG=1.2 docker buildx bake --push
#   CA_BUNDLE=ca.pem PIP_CONFIG=pip.conf docker buildx bake     behind a mirror with a private certificate
#
# `kfp-methods build GROUP` does the same without buildx.

# The folders of images/ that hold a requirements.in for the Dockerfile.
variable "GROUPS" {
  default = ["control", "language", "science", "tabular"]
}

variable "REGISTRY" {
  default = ""
}

variable "TAG" {
  default = "0.1.0"
}

variable "REVISION" {
  default = ""
}

# Empty: the Dockerfile's own, a CUDA image.
variable "BASE_IMAGE" {
  default = ""
}

variable "CA_BUNDLE" {
  default = ""
}

variable "PIP_CONFIG" {
  default = ""
}

variable "APT_SOURCES" {
  default = ""
}

function "image" {
  params = [group]
  result = "${REGISTRY == "" ? "" : "${REGISTRY}/"}kfp-methods/${group}:${TAG}"
}

group "default" {
  targets = GROUPS
}

target "method" {
  name    = group
  matrix  = { group = GROUPS }
  context = "."
  tags    = [image(group)]
  args = {
    BASE_IMAGE = BASE_IMAGE == "" ? null : BASE_IMAGE
    GROUP      = group
    IMAGE      = image(group)
    VERSION    = TAG
    REVISION   = REVISION
  }
  secret = compact([
    CA_BUNDLE == "" ? "" : "id=ca_bundle,src=${CA_BUNDLE}",
    PIP_CONFIG == "" ? "" : "id=pip_config,src=${PIP_CONFIG}",
    APT_SOURCES == "" ? "" : "id=apt_sources,src=${APT_SOURCES}",
  ])
}
