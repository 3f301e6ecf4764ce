// Objects of S3, and of Google Cloud Storage by its XML interface, which speaks S3.
#include "base/remote/buckets.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/remote/foreign.h"
#include "base/remote/upload.h"

namespace longhaul::remote {
namespace {

constexpr absl::Duration kLongestValidity = absl::Hours(7 * 24);
constexpr uint64_t kLargestPage = 64 << 20;
constexpr size_t kMostEntries = 10'000'000;

}  // namespace

Buckets::Buckets(Kind kind, const Tools& tools)
    : kind_(kind),
      tools_(tools),
      keys_(kind == Kind::kGoogle ? tools.settings.credentials.google
                                  : tools.settings.credentials.s3),
      // Google takes any region.
      scope_{.region = kind == Kind::kGoogle ? "auto" : tools.settings.endpoints.s3_region} {}

StatusOr<BucketUrl> Buckets::UrlOf(const Address& address) const {
  const Endpoints& endpoints = tools_.settings.endpoints;
  std::string server = kind_ == Kind::kGoogle ? endpoints.google : endpoints.s3;
  std::string path = "/" + Escaped(address.path, true);
  // Certificates of Amazon cover one name below the region, so a bucket with dots is in the path.
  const bool is_in_host = server.empty() && address.place.find_first_of("._") == std::string::npos;
  if (server.empty()) {
    server = fmt::format("https://{}{}s3.{}.amazonaws.com", is_in_host ? address.place : "",
                         is_in_host ? "." : "", scope_.region);
  }
  if (!is_in_host) path = "/" + address.place + path;
  LH_ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(server + path));
  const bool is_usual = url.port == (url.scheme == "https" ? 443 : 80);
  return BucketUrl{.server = server,
                   .host = is_usual ? url.host : fmt::format("{}:{}", url.host, url.port),
                   .path = path};
}

StatusOr<http::Request> Buckets::Signed(const std::string& method, const Address& address,
                                        const Query& query, std::span<const std::byte> body) const {
  LH_ASSIGN_OR_RETURN(const BucketUrl url, UrlOf(address));
  // A redirect would need another signature.
  http::Request request{
      .method = method, .url = url.server + url.path, .body = body, .redirects = 0};
  if (!query.empty()) request.url += "?" + CanonicalQuery(query);
  if (!body.empty()) request.headers.emplace_back("Content-Type: application/octet-stream");
  if (keys_.empty()) return request;
  ToSign to_sign{.method = method, .host = url.host, .path = url.path, .query = query};
  to_sign.payload_sha256 = kEmptySha256;
  if (!body.empty()) {
    Sha256 hash;
    hash.Update(body);
    to_sign.payload_sha256 = hash.HexDigest();
  }
  for (const auto& [name, value] :
       SignHeaders(to_sign, keys_, scope_, absl::FromUnixMillis(UnixMsNow()))) {
    request.secrets.push_back(fmt::format("{}: {}", name, value));
  }
  return request;
}

StatusOr<http::Answer> Buckets::Send(const std::string& method, const Address& address,
                                     const Query& query, std::span<const std::byte> body,
                                     const http::Call& call, std::string_view what) const {
  LH_ASSIGN_OR_RETURN(http::Request request, Signed(method, address, query, body));
  request.body_limit = kLargestPage;
  LH_ASSIGN_OR_RETURN(http::Answer answer, tools_.client.Send(request, call));
  if (answer.ok()) return answer;
  return ErrorOf(answer, address, what);
}

StatusOr<Listing> Buckets::List(const Address& folder, const http::Call& call) const {
  Listing listing{.at = folder};
  if (!folder.IsFolder()) listing.at.path += '/';
  const std::string& prefix = listing.at.path;
  Address bucket = folder;
  bucket.path = "";
  std::string next;
  do {
    Query query = {{"list-type", "2"}, {"prefix", prefix}};
    if (!next.empty()) query.emplace_back("continuation-token", next);
    BucketPage page;
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(const http::Answer answer,
                          Send("GET", bucket, query, {}, call, "cannot list"));
      StatusOr<BucketPage> parsed = ParseBucketPage(answer.body);
      if (!parsed.ok()) return Annotate(parsed.status(), Doing("cannot list", folder));
      page = *std::move(parsed);
      return absl::OkStatus();
    }));
    for (Entry& entry : page.entries) {
      if (!entry.path.starts_with(prefix)) {
        return DataLoss("{}: expected keys that begin with the folder, got another one",
                        Doing("cannot list", folder));
      }
      entry.path.erase(0, prefix.size());
      // Some programs mark folders by empty objects.
      const bool is_mark = entry.path.empty() || entry.path.ends_with('/');
      if (!is_mark || entry.bytes > 0) listing.entries.push_back(std::move(entry));
    }
    if (!page.next.empty() && (page.next == next || listing.entries.size() > kMostEntries)) {
      return DataLoss("{}: expected a list that ends, the server's does not",
                      Doing("cannot list", folder));
    }
    next = page.next;
  } while (!next.empty());
  return listing;
}

StatusOr<Version> Buckets::Look(const Address& object, const http::Call& call) const {
  LH_ASSIGN_OR_RETURN(const http::Answer answer,
                      Send("HEAD", object, {}, {}, call, "cannot look at"));
  Version version{.tag = TagOf(answer)};
  LH_ASSIGN_OR_RETURN(version.bytes, LengthOf(answer, Doing("cannot look at", object)));
  return version;
}

StatusOr<Source> Buckets::Find(const Address& object, const Version& version,
                               const http::Call&) const {
  Source source{.tag = version.tag};
  LH_ASSIGN_OR_RETURN(source.request, Signed("GET", object, {}, {}));
  return source;
}

StatusOr<Version> Buckets::Write(const Address& object, std::span<const std::byte> bytes,
                                 const http::Call& call) const {
  if (bytes.size() > tools_.options.largest_single_write) {
    return WriteInParts(*this, tools_, object, bytes, call);
  }
  Version version{.bytes = bytes.size()};
  LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(const http::Answer answer,
                        Send("PUT", object, {}, bytes, call, "cannot write"));
    version.tag = TagOf(answer);
    return absl::OkStatus();
  }));
  return version;
}

Status Buckets::Delete(const Address& object, const http::Call& call) const {
  const Status status = tools_.Repeat(call, [&]() -> Status {
    return Send("DELETE", object, {}, {}, call, "cannot delete").status();
  });
  // Amazon says 204 where there is no object, Google 404.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

StatusOr<bool> Buckets::PrepareWrites(const Address& folder, const http::Call& call) const {
  if (keys_.empty()) {
    return FailedPrecondition(
        "{}: there are no keys to write with; set {}", Doing("cannot write", folder),
        kind_ == Kind::kGoogle ? "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY"
                               : "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  // Some servers make a bucket that is missing when somebody writes there.
  const Address bucket{.kind = folder.kind, .place = folder.place};
  LH_RETURN_IF_ERROR(tools_.Repeat(
      call, [&] { return Send("HEAD", bucket, {}, {}, call, "cannot write to").status(); }));
  LH_ASSIGN_OR_RETURN(const Address probe, Inside(folder, ".longhaul-may-write"));
  LH_RETURN_IF_ERROR(BeginAndAbort(*this, tools_, probe, call));
  return false;
}

Status Buckets::WriteAll(const Address& folder, const FolderChange& change,
                         const http::Call& call) const {
  for (const std::string& path : change.removed) {
    LH_ASSIGN_OR_RETURN(const Address object, Inside(folder, path));
    LH_RETURN_IF_ERROR(Delete(object, call));
  }
  uint64_t sent = 0;
  for (const NewFile& file : change.files) {
    LH_ASSIGN_OR_RETURN(const Address object, Inside(folder, file.path));
    if (file.bytes.size() > tools_.options.largest_single_write) {
      const auto progress = [&](uint64_t bytes) {
        if (change.progress) change.progress(sent + bytes);
      };
      LH_RETURN_IF_ERROR(WriteInParts(*this, tools_, object, file.bytes, call, progress).status());
    } else {
      LH_RETURN_IF_ERROR(Write(object, file.bytes, call).status());
    }
    sent += file.bytes.size();
    if (change.progress) change.progress(sent);
  }
  return absl::OkStatus();
}

StatusOr<SignedAddress> Buckets::Sign(const std::string& method, const Address& object,
                                      absl::Duration validity) const {
  if (validity < absl::Seconds(1) || validity > kLongestValidity) {
    return InvalidArgument("{}: expected a validity of one second to seven days, got {}",
                           Doing("cannot sign", object), absl::FormatDuration(validity));
  }
  LH_ASSIGN_OR_RETURN(const BucketUrl url, UrlOf(object));
  if (keys_.empty()) {
    return FailedPrecondition(
        "{}: there are no keys to sign with; set {}", Doing("cannot sign", object),
        kind_ == Kind::kGoogle ? "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY"
                               : "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  const absl::Time now = absl::FromUnixMillis(UnixMsNow());
  const ToSign to_sign{.method = method, .host = url.host, .path = url.path};
  return SignedAddress{.url = fmt::format("{}{}?{}", url.server, url.path,
                                          SignQuery(to_sign, keys_, scope_, now, validity)),
                       .expires = now + validity};
}

StatusOr<SignedAddress> Buckets::SignRead(const Address& object, absl::Duration validity,
                                          const http::Call&) const {
  return Sign("GET", object, validity);
}

StatusOr<SignedAddress> Buckets::SignWrite(const Address& object, absl::Duration validity) const {
  return Sign("PUT", object, validity);
}

std::unique_ptr<Place> MakeBuckets(Kind kind, const Tools& tools) {
  return std::make_unique<Buckets>(kind, tools);
}

}  // namespace longhaul::remote
