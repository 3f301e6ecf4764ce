// Addresses of objects where people keep models, data and checkpoints:
//
// - hf://ORG/NAME[@REVISION]/PATH is a file of a model on a hub. REVISION is main if not said.
// - hf://datasets/ORG/NAME[@REVISION]/PATH is a file of a data set on a hub.
// - s3://BUCKET/KEY is an object of Amazon S3, or of a server that speaks S3.
// - gs://BUCKET/KEY is an object of Google Cloud Storage.
// - https://HOST/PATH and http://HOST/PATH are files of web servers. They may be signed addresses.
//
// An address without PATH or KEY, or with one that ends with '/', is a folder. Paths and keys are
// written as they are. A '/' in a revision is written %2F. Only web addresses have their usual
// escapes. Pure functions: any thread may call them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::remote {

enum class Kind { kHubModel, kHubDataset, kS3, kGoogle, kWeb };

struct Address {
  Kind kind = Kind::kWeb;
  // Hub: "ORG/NAME". S3 and Google: the bucket. Web: "https://HOST[:PORT]".
  std::string place;
  std::string revision;  // hub alone: a branch, a tag or a commit
  // Web: with the query, without the first '/'.
  std::string path;

  bool IsFolder() const { return path.empty() || path.ends_with('/'); }
  bool IsOnHub() const { return kind == Kind::kHubModel || kind == Kind::kHubDataset; }
  friend bool operator==(const Address&, const Address&) = default;
};

// kInvalidArgument: the message says what was expected and what came.
StatusOr<Address> ParseAddress(std::string_view text);
// Parses to the same address again. Never print it where `address` may be signed: use ShownAddress.
std::string ToString(const Address& address);
// For messages: like ToString, but without the query of a web address.
std::string ShownAddress(const Address& address);
// Whether `text` begins with one of the schemes above: it is an address and no path of this
// machine.
bool HasScheme(std::string_view text);
// Returns the address of `path`, which is relative to `folder`. Escapes `path` for web addresses.
// kInvalidArgument: the path is not inside the folder.
StatusOr<Address> Inside(const Address& folder, std::string_view path);

// Writes all bytes but letters, digits and "-._~" as %XX, as RFC 3986 and signatures of S3 want.
// Keeps '/' if `keeps_slashes`.
std::string Escaped(std::string_view text, bool keeps_slashes);

}  // namespace longhaul::remote
