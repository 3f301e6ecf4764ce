#include "base/remote/place.h"

#include <fmt/format.h>

#include <charconv>

#include "base/printable.h"
#include "base/remote/foreign.h"

namespace longhaul::remote {
namespace {

// What a person may do about an answer; begins with "; ", or is "".
std::string AdviceFor(const http::Answer& answer, const Address& address, std::string_view code,
                      bool writes) {
  if (address.IsOnHub()) {
    const bool is_refused = answer.code == 401 || answer.code == 403;
    if (!is_refused && answer.code != 404) return "";
    if (writes) {
      return "; check the name, and set HF_TOKEN to a token that may write there (one with the "
             "role \"write\", or a fine-grained one for this repository)";
    }
    return "; check the name, accept the owner's terms on its page if there are some, and set "
           "HF_TOKEN to the token of a user who may read it";
  }
  if (code == "RequestTimeTooSkewed") return "; set the clock of this machine";
  if (const std::string& region = answer.Header("x-amz-bucket-region");
      !region.empty() && (answer.code == 301 || answer.code == 307 || answer.code == 400)) {
    return fmt::format("; the bucket is in the region {}, so set AWS_REGION to it",
                       Printable(region, 40));
  }
  if (answer.code != 403 && answer.code != 401) return "";
  switch (address.kind) {
    case Kind::kS3:
      return "; check that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong to a user who may do "
             "this";
    case Kind::kGoogle:
      return "; check that GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY belong to a user who may do "
             "this";
    default:
      return "; an address that was signed may have expired";
  }
}

}  // namespace

Status Tools::Repeat(const http::Call& call, const std::function<Status()>& send) const {
  http::Retries retries(options.patience, call);
  while (true) {
    const Status status = send();
    if (status.ok()) return status;
    LH_RETURN_IF_ERROR(retries.Wait(status));
  }
}

StatusOr<bool> Place::PrepareWrites(const Address& folder, const http::Call&) const {
  return InvalidArgument("{}: expected hf://, s3:// or gs://; web servers take no folders",
                         Doing("cannot write", folder));
}

Status Place::WriteAll(const Address& folder, const FolderChange&, const http::Call& call) const {
  return PrepareWrites(folder, call).status();
}

Status Place::Delete(const Address& object, const http::Call&) const {
  return InvalidArgument("{}: only objects at s3:// and gs:// addresses can be deleted",
                         Doing("cannot delete", object));
}

std::string Doing(std::string_view what, const Address& address) {
  return fmt::format("{} {}", what, ShownAddress(address));
}

Status ErrorOf(const http::Answer& answer, const Address& address, std::string_view what) {
  std::string code = Printable(answer.Header("x-error-code"), 100);
  if (code.empty()) code = ErrorCodeOf(answer.body);
  // S3 waited too long for the next byte of a body.
  if (code == "RequestTimeout") {
    return Unavailable("{}: the server answers {} ({})", Doing(what, address), answer.code, code);
  }
  const Status error = http::ErrorOfAnswer(Doing(what, address), answer, code);
  const std::string advice = AdviceFor(
      answer, address, code, what.starts_with("cannot write") || what.starts_with("cannot make"));
  if (advice.empty()) return error;
  return {error.code(), std::string(Message(error)) + advice};
}

std::string TagOf(const http::Answer& answer) {
  const std::string& tag = answer.Header("etag");
  return tag.empty() ? answer.Header("last-modified") : tag;
}

StatusOr<uint64_t> LengthOf(const http::Answer& answer, std::string_view what) {
  const std::string& text = answer.Header("content-length");
  uint64_t bytes = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size()) {
    return bytes;
  }
  return DataLoss("{}: expected the header Content-Length with the object's size, got '{}'", what,
                  Printable(text, 100));
}

std::optional<uint64_t> WholeSizeOf(const http::Answer& answer) {
  const std::string& text = answer.Header("content-range");
  const size_t slash = text.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  uint64_t bytes = 0;
  const auto read = std::from_chars(text.data() + slash + 1, text.data() + text.size(), bytes);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return bytes;
}

}  // namespace longhaul::remote
