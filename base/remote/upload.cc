#include "base/remote/upload.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <pugixml.hpp>
#include <sstream>

#include "base/log.h"
#include "base/remote/foreign.h"
#include "base/remote/read.h"

namespace longhaul::remote {
namespace {

// Limits of S3.
constexpr uint64_t kMostParts = 10'000;
constexpr uint64_t kSmallestPart = 5 << 20;
constexpr absl::Duration kAbortLimit = absl::Seconds(30);

class Upload {
 public:
  Upload(const Buckets& buckets, const Tools& tools, const Address& object,
         std::span<const std::byte> bytes, const http::Call& call,
         const std::function<void(uint64_t bytes)>& progress = {})
      : buckets_(buckets),
        tools_(tools),
        object_(object),
        bytes_(bytes),
        call_(call),
        progress_(progress) {
    const uint64_t fewest = (bytes.size() - 1) / kMostParts + 1;
    part_bytes_ = std::max({tools.options.part_bytes, kSmallestPart, fewest});
    tags_.resize((bytes.size() - 1) / part_bytes_ + 1);
  }

  Status Try() {
    LH_RETURN_IF_ERROR(Begin());
    Abort();
    return absl::OkStatus();
  }

  StatusOr<Version> Run() {
    LH_RETURN_IF_ERROR(Begin());
    StatusOr<Version> version = SendAll();
    if (!version.ok()) Abort();
    return version;
  }

 private:
  Status Begin() {
    return tools_.Repeat(call_, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(const http::Answer answer,
                          buckets_.Send("POST", object_, {{"uploads", ""}}, {}, call_, kWhat));
      id_ = ElementOf(answer.body, "InitiateMultipartUploadResult", "UploadId");
      if (!id_.empty()) return absl::OkStatus();
      return DataLoss("{}: expected an UploadId from the server, got none", Doing(kWhat, object_));
    });
  }

  StatusOr<Version> SendAll() {
    LH_RETURN_IF_ERROR(SideBySide(
        tags_.size(), tools_.options.parallel, call_,
        [&](uint64_t number, const http::Call& call) { return SendPart(number, call); }));
    return Complete();
  }

  Status SendPart(uint64_t number, const http::Call& call) {
    const uint64_t begin = number * part_bytes_;
    const auto part = bytes_.subspan(begin, std::min(part_bytes_, bytes_.size() - begin));
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(
          const http::Answer answer,
          buckets_.Send("PUT", object_,
                        {{"partNumber", fmt::to_string(number + 1)}, {"uploadId", id_}}, part, call,
                        kWhat));
      tags_[number] = answer.Header("etag");
      if (!tags_[number].empty()) return absl::OkStatus();
      return DataLoss("{}: expected an ETag for part {}, got none", Doing(kWhat, object_),
                      number + 1);
    }));
    const uint64_t sent = sent_ += part.size();
    if (progress_) progress_(sent);
    return absl::OkStatus();
  }

  StatusOr<Version> Complete() {
    const std::string list = PartList();
    Version version{.bytes = bytes_.size()};
    const Status status = tools_.Repeat(call_, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(const http::Answer answer,
                          buckets_.Send("POST", object_, {{"uploadId", id_}},
                                        std::as_bytes(std::span(list)), call_, kWhat));
      version.tag = ElementOf(answer.body, "CompleteMultipartUploadResult", "ETag");
      if (!version.tag.empty()) return absl::OkStatus();
      // S3 answers 200 before it knows, and says in the body how it ended.
      const std::string error = ErrorCodeOf(answer.body);
      const std::string text = fmt::format("{}: the server answers {} at the end ({})",
                                           Doing(kWhat, object_), answer.code, error);
      if (error == "InternalError" || error == "SlowDown" || error == "ServiceUnavailable") {
        return absl::UnavailableError(text);
      }
      return absl::FailedPreconditionError(text);
    });
    // The upload may be complete, and the answer that said so be lost. Libcurl, too, sends again
    // when a connection that was idle ends without an answer.
    if (absl::IsNotFound(status)) {
      const auto object = buckets_.Look(object_, call_);
      if (object.ok() && *object == Version{bytes_.size(), WholeTag()}) return object;
    }
    LH_RETURN_IF_ERROR(status);
    return version;
  }

  // Returns the tag that S3 and most of its kin give the whole object. Tags of parts are MD5 sums;
  // the whole tag is the MD5 of all these sums, then "-" and the number of parts.
  std::string WholeTag() const {
    std::string sums;
    for (const std::string& tag : tags_) {
      for (size_t i = 0; i + 1 < tag.size(); ++i) {
        unsigned byte = 0;
        const auto read = std::from_chars(&tag[i], &tag[i] + 2, byte, 16);
        if (read.ec != std::errc() || read.ptr != &tag[i] + 2) continue;  // quotes
        sums += static_cast<char>(byte);
        ++i;
      }
    }
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
    unsigned size = 0;
    if (EVP_Digest(sums.data(), sums.size(), sum.data(), &size, EVP_md5(), nullptr) != 1) return "";
    std::string tag = "\"";
    for (unsigned i = 0; i < size; ++i) tag += fmt::format("{:02x}", sum[i]);
    return fmt::format("{}-{}\"", tag, tags_.size());
  }

  std::string PartList() const {
    pugi::xml_document document;
    pugi::xml_node root = document.append_child("CompleteMultipartUpload");
    for (size_t i = 0; i < tags_.size(); ++i) {
      pugi::xml_node part = root.append_child("Part");
      part.append_child("PartNumber").text().set(fmt::to_string(i + 1).c_str());
      part.append_child("ETag").text().set(tags_[i].c_str());
    }
    std::ostringstream text;
    document.save(text, "", pugi::format_raw);
    return text.str();
  }

  // Also where the caller has given up, so with a limit of its own.
  void Abort() {
    const http::Call call{.deadline = Deadline::After(kAbortLimit)};
    const Status status = tools_.Repeat(call, [&] {
      return buckets_.Send("DELETE", object_, {{"uploadId", id_}}, {}, call, kWhat).status();
    });
    if (status.ok() || absl::IsNotFound(status)) return;
    LogWarning("{}; parts of the unfinished object stay on the server", Message(status));
  }

  static constexpr std::string_view kWhat = "cannot write";
  const Buckets& buckets_;
  const Tools& tools_;
  const Address& object_;
  const std::span<const std::byte> bytes_;
  const http::Call& call_;
  const std::function<void(uint64_t bytes)> progress_;
  std::atomic<uint64_t> sent_{0};
  uint64_t part_bytes_ = 0;
  std::string id_;
  std::vector<std::string> tags_;  // of each part
};

}  // namespace

StatusOr<Version> WriteInParts(const Buckets& buckets, const Tools& tools, const Address& object,
                               std::span<const std::byte> bytes, const http::Call& call,
                               const std::function<void(uint64_t bytes)>& progress) {
  return Upload(buckets, tools, object, bytes, call, progress).Run();
}

Status BeginAndAbort(const Buckets& buckets, const Tools& tools, const Address& object,
                     const http::Call& call) {
  constexpr std::byte kByte{};
  return Upload(buckets, tools, object, {&kByte, 1}, call).Try();
}

}  // namespace longhaul::remote
