"""File systems of fsspec: opened alike everywhere, with failures put into words that help.

No listing is cached, since others write to the same place. A file system with connections has a
thread for them, and does not survive a fork; fsspec makes another one in the child.
"""

from __future__ import annotations

import io
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
from fsspec.registry import known_implementations, registry

from minirt import by_value
from minirt.errors import ConfigurationError
from minirt.secret_texts import register_url

logger = logging.getLogger("minirt.storage")

BUCKET_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols of object stores: no folders, no rename, and a bucket that somebody else has made."""

_NOWHERE = "minirt_has_no_such_module"
"""Where the class of a protocol is that workers cannot get; fsspec then says why."""

_DELETED_AT_ONCE = 1000
"""More keys S3 does not take in a request."""

_opened: dict[int, Any] = {}
"""Every file system of this process and of those that it was forked from, by identity.

One that was inherited must not be collected: it would try to close its connections by a thread that only
the parent has, which takes a second each, and they are the parent's.
"""

_ADVICE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"NoSuchBucket"}), "create the bucket, or correct the URL"),
    (
        frozenset({"PermissionError", "ClientError"}),
        "check key and secret, and what they may do in this bucket",
    ),
    (
        frozenset({"NoCredentialsError"}),
        "give key and secret as storage options, or as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (frozenset({"PartialCredentialsError"}), "give both key and secret"),
    (frozenset({"EndpointConnectionError"}), "check endpoint_url, and that the server runs"),
    (frozenset({"ConnectTimeoutError"}), "check endpoint_url, and that the server runs"),
    (frozenset({"FSTimeoutError"}), "it took too long; check the connection to the server"),
    (frozenset({"TypeError"}), "check the names of the storage options"),
    (frozenset({"ImportError"}), "install the package; for s3:// it is minirt[s3]"),
)
"""Advice for errors whose classes, or those of their causes, have all of these names."""


_CLIENT_ERRORS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "aiohttp.client_exceptions": ("ClientError",),
}
"""The errors of client libraries that are no OSError."""


def load_protocol(protocol: str) -> None:
    """Import what the protocol needs; in a process that forks others, so that each of them need not.

    Raises ConfigurationError if there is no such protocol, or its package is not installed.
    """
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"cannot use {protocol}://: {explain(error)}") from error


@dataclass(frozen=True, slots=True)
class Protocols:
    """The protocols that a program has registered with fsspec, so that its worker processes know them as
    well."""

    names: Mapping[str, Mapping[str, Any]]
    """The importable class of each protocol, and what to say where it cannot be imported."""
    classes: Mapping[str, bytes]
    """Pickled classes, where a class itself was registered."""

    @classmethod
    def of_this_process(cls) -> Protocols:
        names = {protocol: dict(known) for protocol, known in known_implementations.items()}
        classes = {}
        for protocol, registered in registry.items():
            if protocol in names and _loaded(names[protocol]["class"]) is registered:
                continue
            try:
                classes[protocol] = _pickled(registered)
            except Exception as error:  # what cannot be pickled raises whatever it likes
                why = (
                    f"{protocol}:// is unknown in worker processes, since its class "
                    f"{registered.__qualname__} cannot be pickled ({error}); put the class into a module "
                    "that the job imports"
                )
                logger.warning(why)
                names[protocol] = {"class": f"{_NOWHERE}.{registered.__qualname__}", "err": why}
        return cls(names, classes)

    def register(self) -> None:
        """Make them known to this process."""
        known_implementations.update({name: dict(known) for name, known in self.names.items()})
        for protocol, registered in self.classes.items():
            fsspec.register_implementation(protocol, pickle.loads(registered), clobber=True)


class _ClassPickler(by_value.Pickler):
    """Leaves out what fsspec keeps in each class for one process only: it makes that anew."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, type(fsspec.AbstractFileSystem)) and isinstance(reduced, tuple):
            attributes, _ = reduced[2]
            for name in ("_cache", "_instantiation_lock", "_latest", "_pid"):
                attributes.pop(name, None)
        return reduced


def _pickled(registered: type) -> bytes:
    """A class that a script defines as a whole, any other one by its name."""
    with io.BytesIO() as file:
        _ClassPickler(file).dump(registered)
        return file.getvalue()


def _loaded(name: str) -> Any:
    """The object with this full name, None if its module is not imported."""
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None)


def is_of_one_process(url: str) -> bool:
    """Whether each process finds something else there."""
    return any(part.partition("://")[0] == "memory" for part in url.split("::"))


def check_url(text: str) -> str:
    """Return the path or URL as it is, and keep its secrets out of messages.

    Raises ConfigurationError for one that begins like a URL and lacks a slash: "s3:/bucket/x" would be a
    local folder called "s3:".
    """
    protocol, colon, rest = text.partition(":")
    if colon and not rest.startswith(("//", ":")) and protocol.lower() in known_implementations:
        right = f"{protocol}://{rest.lstrip('/')}"
        register_url(right)
        raise ConfigurationError(
            f"{text!r} is no URL of {protocol}; did you mean {right!r}? "
            f"A local folder of that name is './{text}'"
        )
    register_url(text)
    return text


def open_filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, one for all URLs with the same options, and the path within it.

    Raises ValueError, ImportError or TypeError for protocols and options that cannot be used.
    """
    filesystem, path = fsspec.core.url_to_fs(
        check_url(url), **{**options, "use_listings_cache": False}
    )
    if not has_folders(filesystem) and not path.strip("/"):
        raise ValueError("the URL names no bucket")
    _opened[id(filesystem)] = filesystem
    return filesystem, path


def has_folders(filesystem: Any) -> bool:
    """Whether folders must be made. Otherwise there is a bucket, which its owner makes."""
    protocol = filesystem.protocol
    return BUCKET_STORES.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)


def failures(*besides: type[Exception]) -> tuple[type[Exception], ...]:
    """What an access may raise, for an `except`: OSError, errors of client libraries, and `besides`."""
    of_clients = [
        getattr(sys.modules[module], name)
        for module, names in _CLIENT_ERRORS.items()
        if module in sys.modules
        for name in names
    ]
    return (OSError, *of_clients, *besides)


def explain(error: BaseException) -> str:
    """A text that says what went wrong, and what to do about it where that is known."""
    classes = (*type(error).__mro__, *type(error.__cause__).__mro__)
    names = {each.__name__ for each in classes}
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    advice = [advice for known, advice in _ADVICE if known <= names]
    return "; ".join([said, *advice[:1]])


def delete_together(filesystem: Any, paths: Sequence[str], timeout_s: float) -> list[str]:
    """Remove objects of one bucket, a thousand with each request; returns those that may be there still.

    Only S3 has such a request, and not all servers that speak like it: what they refuse is returned, too.
    """
    if "s3" not in filesystem.protocol or len(paths) < 2:
        return [*paths]
    left: list[str] = []
    for first in range(0, len(paths), _DELETED_AT_ONCE):
        keys = {filesystem.split_path(path)[1]: path for path in paths[first:][:_DELETED_AT_ONCE]}
        bucket = filesystem.split_path(paths[first])[0]
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            answer = filesystem.call_s3(
                "delete_objects", Bucket=bucket, Delete=objects, timeout=timeout_s
            )
        except Exception:
            left += paths[first:]
            break
        left += [keys[refused["Key"]] for refused in answer.get("Errors", [])]
    return left


def abort_uploads(filesystem: Any, folder: str, unwanted: Callable[[str], bool]) -> None:
    """End the multipart uploads below the folder that are unwanted, judging by their paths.

    S3 keeps what a crash has left of them, unseen, and charges for it. If minirt may not list or abort them
    it logs that and raises no error, since nothing depends on it.
    """
    if "s3" not in filesystem.protocol:
        return
    try:
        for path, upload in list(_uploads(filesystem, folder)):
            if unwanted(path):
                filesystem.call_s3("abort_multipart_upload", **upload)
    except Exception as error:
        logger.warning(
            "uploads that crashed below %s could not be aborted: %s", folder, explain(error)
        )


def _uploads(filesystem: Any, folder: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The path of each upload below the folder, and what names it to S3."""
    bucket, prefix, _ = filesystem.split_path(f"{folder}/")
    more: dict[str, str] = {}
    while True:
        page = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **more)
        for found in page.get("Uploads", []):
            key = found["Key"]
            yield f"{bucket}/{key}", {"Bucket": bucket, "Key": key, "UploadId": found["UploadId"]}
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
