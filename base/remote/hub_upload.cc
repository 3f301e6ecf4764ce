#include "base/remote/hub_upload.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/remote/foreign.h"
#include "base/remote/read.h"

namespace longhaul::remote {
namespace {

// How much of a file the hub looks at before it says how it wants the file.
constexpr size_t kSampleBytes = 512;

std::string Base64(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

class HubUpload {
 public:
  using Fields = nlohmann::json;

  HubUpload(const Tools& tools, const AskHub& ask, const Address& object,
            std::span<const std::byte> bytes, const http::Call& call)
      : tools_(tools), ask_(ask), object_(object), bytes_(bytes), call_(call) {}

  StatusOr<std::string> Run() {
    LH_ASSIGN_OR_RETURN(
        const std::string mode,
        Post(Api("preupload"), "application/json",
             Fields{{"files",
                     {{{"path", object_.path},
                       {"size", bytes_.size()},
                       {"sample", Base64(bytes_.first(std::min(kSampleBytes, bytes_.size())))}}}}}
                 .dump()));
    LH_ASSIGN_OR_RETURN(const bool is_large, Named(ParseUploadMode(mode)));
    if (!is_large) {
      return Commit(
          {{"key", "file"},
           {"value",
            {{"path", object_.path}, {"encoding", "base64"}, {"content", Base64(bytes_)}}}});
    }
    Sha256 hash;
    hash.Update(bytes_);
    sha256_ = hash.HexDigest();
    LH_RETURN_IF_ERROR(SendLarge());
    return Commit({{"key", "lfsFile"},
                   {"value",
                    {{"path", object_.path},
                     {"algo", "sha256"},
                     {"oid", sha256_},
                     {"size", bytes_.size()}}}});
  }

 private:
  std::string Api(std::string_view what) const {
    return fmt::format("{}/api/{}/{}/{}/{}", tools_.settings.endpoints.hub,
                       object_.kind == Kind::kHubDataset ? "datasets" : "models", object_.place,
                       what, Escaped(object_.revision, false));
  }

  Status Named(const Status& status) const { return Annotate(status, Doing(kWhat, object_)); }
  template <class Value>
  StatusOr<Value> Named(StatusOr<Value> value) const {
    if (!value.ok()) return Named(value.status());
    return value;
  }

  // Sends until it is answered by 2xx, and returns the answer.
  StatusOr<http::Answer> Send(const http::Request& request, const http::Call& call) const {
    StatusOr<http::Answer> answer;
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      answer = tools_.client.Send(request, call);
      if (!answer.ok() || answer->ok()) return answer.status();
      return ErrorOf(*answer, object_, kWhat);
    }));
    return answer;
  }

  // To the hub, with the user's token.
  StatusOr<std::string> Post(const std::string& url, const std::string& type,
                             const std::string& body) const {
    http::Request request = ask_("POST", url);
    request.headers = {"Content-Type: " + type, "Accept: " + type};
    request.body = std::as_bytes(std::span(body));
    LH_ASSIGN_OR_RETURN(http::Answer answer, Send(request, call_));
    return std::move(answer.body);
  }

  // To an address that the hub named, without the token.
  Status PostTo(const std::string& url, const std::vector<std::string>& headers,
                const Fields& fields) const {
    const std::string body = fields.dump();
    http::Request request{.method = "POST", .url = url, .secrets = headers};
    request.headers = {kLfsType, kLfsAccept};
    request.body = std::as_bytes(std::span(body));
    return Send(request, call_).status();
  }

  Status SendLarge() {
    LH_ASSIGN_OR_RETURN(
        const std::string batch,
        Post(fmt::format("{}/{}{}.git/info/lfs/objects/batch", tools_.settings.endpoints.hub,
                         object_.kind == Kind::kHubDataset ? "datasets/" : "", object_.place),
             "application/vnd.git-lfs+json",
             Fields{{"operation", "upload"},
                    {"transfers", {"basic", "multipart"}},
                    {"hash_algo", "sha256"},
                    {"objects", {{{"oid", sha256_}, {"size", bytes_.size()}}}}}
                 .dump()));
    LH_ASSIGN_OR_RETURN(const LargeUpload upload, Named(ParseLargeUpload(batch, bytes_.size())));
    if (!upload.url.empty()) {
      LH_RETURN_IF_ERROR(upload.part_urls.empty() ? SendWhole(upload) : SendParts(upload));
    }
    if (upload.verify_url.empty()) return absl::OkStatus();
    return PostTo(upload.verify_url, upload.verify_headers,
                  {{"oid", sha256_}, {"size", bytes_.size()}});
  }

  Status SendWhole(const LargeUpload& upload) const {
    return Send({.method = "PUT", .url = upload.url, .secrets = upload.headers, .body = bytes_},
                call_)
        .status();
  }

  Status SendParts(const LargeUpload& upload) const {
    Fields parts = Fields::array();
    for (size_t i = 0; i < upload.part_urls.size(); ++i) {
      parts.push_back({{"partNumber", i + 1}, {"etag", ""}});
    }
    LH_RETURN_IF_ERROR(SideBySide(
        upload.part_urls.size(), tools_.options.parallel, call_,
        [&](uint64_t number, const http::Call& call) -> Status {
          const uint64_t begin = number * upload.part_bytes;
          const auto part =
              bytes_.subspan(begin, std::min(upload.part_bytes, bytes_.size() - begin));
          LH_ASSIGN_OR_RETURN(
              const http::Answer answer,
              Send({.method = "PUT", .url = upload.part_urls[number], .body = part}, call));
          parts[number]["etag"] = answer.Header("etag");
          return absl::OkStatus();
        }));
    return PostTo(upload.url, {}, {{"oid", sha256_}, {"parts", parts}});
  }

  StatusOr<std::string> Commit(const Fields& file) const {
    const Fields header = {{"key", "header"},
                           {"value", {{"summary", "Upload " + object_.path}, {"description", ""}}}};
    LH_ASSIGN_OR_RETURN(const std::string answer,
                        Post(Api("commit"), "application/x-ndjson",
                             fmt::format("{}\n{}\n", header.dump(), file.dump())));
    return Named(ParseHubCommit(answer));
  }

  static constexpr std::string_view kWhat = "cannot write";
  static constexpr const char* kLfsType = "Content-Type: application/vnd.git-lfs+json";
  static constexpr const char* kLfsAccept = "Accept: application/vnd.git-lfs+json";
  const Tools& tools_;
  const AskHub& ask_;
  const Address& object_;
  const std::span<const std::byte> bytes_;
  const http::Call& call_;
  std::string sha256_;
};

}  // namespace

StatusOr<std::string> WriteToHub(const Tools& tools, const AskHub& ask, const Address& object,
                                 std::span<const std::byte> bytes, const http::Call& call) {
  return HubUpload(tools, ask, object, bytes, call).Run();
}

}  // namespace longhaul::remote
