// Objects of S3 and of Google Cloud Storage. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/remote/place.h"
#include "base/remote/sigv4.h"

namespace longhaul::remote {

struct BucketUrl {
  std::string server;  // "https://host:port"
  std::string host;    // as in the Host header
  std::string path;    // escaped
};

class Buckets final : public Place {
 public:
  using Query = std::vector<std::pair<std::string, std::string>>;  // not escaped

  Buckets(Kind kind, const Tools& tools);

  StatusOr<Listing> List(const Address& folder, const http::Call& call) const override;
  StatusOr<Version> Look(const Address& object, const http::Call& call) const override;
  StatusOr<Source> Find(const Address& object, const Version& version,
                        const http::Call& call) const override;
  bool Forget(const Address&) const override { return false; }
  StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                          const http::Call& call) const override;
  StatusOr<bool> PrepareWrites(const Address& folder, const http::Call& call) const override;
  Status WriteAll(const Address& folder, const FolderChange& change,
                  const http::Call& call) const override;
  Status Delete(const Address& object, const http::Call& call) const override;
  StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration validity,
                                   const http::Call& call) const override;
  StatusOr<SignedAddress> SignWrite(const Address& object, absl::Duration validity) const override;

  // Sends a signed request once. Errors begin with `what`.
  StatusOr<http::Answer> Send(const std::string& method, const Address& address, const Query& query,
                              std::span<const std::byte> body, const http::Call& call,
                              std::string_view what) const;

 private:
  StatusOr<BucketUrl> UrlOf(const Address& address) const;
  StatusOr<http::Request> Signed(const std::string& method, const Address& address,
                                 const Query& query, std::span<const std::byte> body) const;
  StatusOr<SignedAddress> Sign(const std::string& method, const Address& object,
                               absl::Duration validity) const;

  const Kind kind_;
  const Tools& tools_;
  const Keys& keys_;
  const SignedScope scope_;
};

}  // namespace longhaul::remote
