// Files of a hub such as huggingface.co. The hub answers for small files itself, and redirects to a
// signed address of its CDN for large ones. That address is asked for once and used for many
// ranges, because the hub limits how often it is asked.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "base/printable.h"
#include "base/remote/foreign.h"
#include "base/remote/hub_upload.h"
#include "base/remote/place.h"

namespace longhaul::remote {
namespace {

constexpr size_t kMostKnownAddresses = 4096;
constexpr uint64_t kLargestDescription = 256 << 20;

// The hub's tag of a file: for large files that of the CDN is another one.
std::string HubTagOf(const http::Answer& answer) {
  const std::string& tag = answer.Header("x-linked-etag");
  return tag.empty() ? TagOf(answer) : tag;
}

// Returns the value of a parameter of a query, as it is written, or "".
std::string ParameterOf(std::string_view url, std::string_view name) {
  const size_t query = url.find('?');
  if (query == url.npos) return "";
  for (size_t begin = query + 1; begin < url.size();) {
    const size_t end = std::min(url.find('&', begin), url.size());
    const std::string_view pair = url.substr(begin, end - begin);
    const size_t equals = pair.find('=');
    if (equals != pair.npos && pair.substr(0, equals) == name) {
      return std::string(pair.substr(equals + 1));
    }
    begin = end + 1;
  }
  return "";
}

// By the two forms that CDNs use: Expires=<seconds since 1970>, X-Amz-Date with X-Amz-Expires.
std::optional<absl::Time> ExpiryOf(std::string_view url) {
  const auto number = [](const std::string& text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || value < 0 || value > 1ll << 40) {
      return std::nullopt;
    }
    return value;
  };
  if (const auto seconds = number(ParameterOf(url, "Expires")))
    return absl::FromUnixSeconds(*seconds);
  absl::Time begin;
  std::string error;
  const auto seconds = number(ParameterOf(url, "X-Amz-Expires"));
  if (seconds &&
      absl::ParseTime("%Y%m%dT%H%M%SZ", ParameterOf(url, "X-Amz-Date"), &begin, &error)) {
    return begin + absl::Seconds(*seconds);
  }
  return std::nullopt;
}

class Hub final : public Place {
 public:
  explicit Hub(const Tools& tools) : tools_(tools) {}

  StatusOr<Listing> List(const Address& folder, const http::Call& call) const override {
    HubRevision revision;
    const std::string url =
        fmt::format("{}/api/{}/{}/revision/{}?blobs=true", tools_.settings.endpoints.hub,
                    folder.kind == Kind::kHubDataset ? "datasets" : "models", folder.place,
                    Escaped(folder.revision, false));
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      http::Request request = Ask("GET", url);
      request.body_limit = kLargestDescription;
      LH_ASSIGN_OR_RETURN(const http::Answer answer, tools_.client.Send(request, call));
      if (answer.code != 200) return ErrorOf(answer, folder, "cannot list");
      StatusOr<HubRevision> parsed = ParseHubRevision(answer.body);
      if (!parsed.ok()) return Annotate(parsed.status(), Doing("cannot list", folder));
      revision = *std::move(parsed);
      return absl::OkStatus();
    }));
    Listing listing{.at = folder};
    listing.at.revision = revision.commit;
    if (!listing.at.IsFolder()) listing.at.path += '/';
    for (Entry& entry : revision.entries) {
      if (!entry.path.starts_with(listing.at.path)) continue;
      entry.path.erase(0, listing.at.path.size());
      listing.entries.push_back(std::move(entry));
    }
    return listing;
  }

  StatusOr<Version> Look(const Address& object, const http::Call& call) const override {
    LH_ASSIGN_OR_RETURN(const http::Answer answer, Resolve(object, call, "cannot look at"));
    return VersionIn(answer, object);
  }

  StatusOr<Source> Find(const Address& object, const Version& version,
                        const http::Call& call) const override {
    const std::string name = ToString(object);
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(name);
      if (known != known_.end() && known->second.version == version) {
        return Source{.request = {.url = known->second.url}, .tag = ""};
      }
    }
    LH_ASSIGN_OR_RETURN(const http::Answer answer, Resolve(object, call, "cannot read"));
    LH_ASSIGN_OR_RETURN(const Version now, VersionIn(answer, object));
    if (now != version) {
      return Aborted(
          "{} has changed: expected {} bytes with the tag {}, the hub now has {} bytes with the "
          "tag "
          "{}; look at it again",
          ShownAddress(object), version.bytes, Printable(version.tag, 100), now.bytes,
          Printable(now.tag, 100));
    }
    if (answer.ok()) return Source{.request = Ask("GET", answer.url), .tag = version.tag};
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostKnownAddresses) known_.clear();
    known_[name] = {.version = version, .url = answer.redirect};
    return Source{.request = {.url = answer.redirect}, .tag = ""};
  }

  bool Forget(const Address& object) const override {
    const std::lock_guard lock(mutex_);
    known_.erase(ToString(object));
    return true;
  }

  StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                          const http::Call& call) const override {
    LH_RETURN_IF_ERROR(CheckToken(object));
    Address written = object;
    const FolderChange change{.files = {{.path = object.path, .bytes = bytes}},
                              .summary = "Upload " + object.path};
    LH_ASSIGN_OR_RETURN(written.revision, WriteToHub(tools_, Asker(), object, change, call));
    Version version;
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(version, Look(written, call));
      return absl::OkStatus();
    }));
    return version;
  }

  StatusOr<bool> PrepareWrites(const Address& folder, const http::Call& call) const override {
    LH_RETURN_IF_ERROR(CheckToken(folder));
    const auto is_hex = [](char letter) {
      return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
    };
    if (folder.revision.size() == 40 && std::ranges::all_of(folder.revision, is_hex)) {
      return InvalidArgument("{}: expected a branch, got a commit, which never changes",
                             Doing("cannot write", folder));
    }
    return PrepareHub(tools_, Asker(), folder, call);
  }

  Status WriteAll(const Address& folder, const FolderChange& change,
                  const http::Call& call) const override {
    LH_RETURN_IF_ERROR(CheckToken(folder));
    FolderChange placed = change;
    for (NewFile& file : placed.files) {
      LH_ASSIGN_OR_RETURN(const Address object, Inside(folder, file.path));
      file.path = object.path;
    }
    for (std::string& path : placed.removed) {
      LH_ASSIGN_OR_RETURN(const Address object, Inside(folder, path));
      path = object.path;
    }
    return WriteToHub(tools_, Asker(), folder, placed, call).status();
  }

  StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration,
                                   const http::Call& call) const override {
    std::string url;
    Version version;
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(const http::Answer answer, Resolve(object, call, "cannot sign"));
      LH_ASSIGN_OR_RETURN(version, VersionIn(answer, object));
      url = answer.ok() ? "" : answer.redirect;
      return absl::OkStatus();
    }));
    if (!url.empty()) {
      return SignedAddress{.url = url, .expires = ExpiryOf(url), .version = std::move(version)};
    }
    if (tools_.settings.credentials.hub_token.empty()) {
      return SignedAddress{.url = UrlOf(object), .expires = std::nullopt};
    }
    return FailedPrecondition(
        "{}: the hub sends this file itself, as it does with small files, and signs no address for "
        "it; read it here and pass its bytes on",
        Doing("cannot sign", object));
  }

  StatusOr<SignedAddress> SignWrite(const Address& object, absl::Duration) const override {
    return InvalidArgument("{}: only s3:// and gs:// addresses can be signed for writing",
                           Doing("cannot sign", object));
  }

 private:
  struct Known {
    Version version;
    std::string url;
  };

  Status CheckToken(const Address& address) const {
    if (!tools_.settings.credentials.hub_token.empty()) return absl::OkStatus();
    return FailedPrecondition(
        "{}: a hub takes files only with a token; set HF_TOKEN to the token of a user who may "
        "write there",
        Doing("cannot write", address));
  }

  AskHub Asker() const {
    return [this](std::string method, std::string url) {
      return Ask(std::move(method), std::move(url));
    };
  }

  http::Request Ask(std::string method, std::string url) const {
    http::Request request{.method = std::move(method), .url = std::move(url)};
    const Secret& token = tools_.settings.credentials.hub_token;
    if (!token.empty()) request.secrets.push_back("Authorization: Bearer " + token.Reveal());
    return request;
  }

  std::string UrlOf(const Address& object) const {
    return fmt::format("{}/{}{}/resolve/{}/{}", tools_.settings.endpoints.hub,
                       object.kind == Kind::kHubDataset ? "datasets/" : "", object.place,
                       Escaped(object.revision, false), Escaped(object.path, true));
  }

  // An answer of 2xx from the hub itself, or of 3xx with the CDN's address.
  StatusOr<http::Answer> Resolve(const Address& object, const http::Call& call,
                                 std::string_view what) const {
    http::Request request = Ask("HEAD", UrlOf(object));
    request.leaves_origin = false;
    LH_ASSIGN_OR_RETURN(http::Answer answer, tools_.client.Send(request, call));
    if (answer.ok() || !answer.redirect.empty()) return answer;
    return ErrorOf(answer, object, what);
  }

  static StatusOr<Version> VersionIn(const http::Answer& answer, const Address& object) {
    Version version{.tag = HubTagOf(answer)};
    const std::string& linked = answer.Header("x-linked-size");
    if (linked.empty() && answer.ok()) {
      LH_ASSIGN_OR_RETURN(version.bytes, LengthOf(answer, Doing("cannot look at", object)));
      return version;
    }
    const auto read = std::from_chars(linked.data(), linked.data() + linked.size(), version.bytes);
    if (linked.empty() || read.ec != std::errc() || read.ptr != linked.data() + linked.size()) {
      return DataLoss("{}: expected the header X-Linked-Size with the file's size, got '{}'",
                      Doing("cannot look at", object), Printable(linked, 100));
    }
    return version;
  }

  const Tools& tools_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Known> known_;  // addresses of the CDN, by ToString of the file
};

}  // namespace

std::unique_ptr<Place> MakeHub(const Tools& tools) {
  return std::make_unique<Hub>(tools);
}

}  // namespace longhaul::remote
