"""The methods, by image group; KFP_METHODS_PATH adds folders of your own, laid out the same way."""

import os

__path__ = [*__path__, *(folder for folder in os.environ.get("KFP_METHODS_PATH", "").split(os.pathsep) if folder)]
