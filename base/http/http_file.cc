#include "base/http/http_file.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "base/version.h"

namespace longhaul::http {
namespace {

constexpr long kConnectSeconds = 15;
constexpr long kSilentSeconds = 60;
constexpr long kMostRedirects = 10;

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

// One GET, while it runs.
struct Transfer {
  CURL* curl = nullptr;
  std::string address;
  GivenUp given_up;
  // Hears of the answer before its body; and gets that in pieces.
  std::function<Status(long code, const std::string& content_range)> begin;
  std::function<Status(std::string_view piece)> take;

  std::string content_range;  // of the last answer
  bool has_begun = false;
  Status status;

  bool Begin() {
    if (has_begun) return status.ok();
    has_begun = true;
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    status = begin(code, content_range);
    return status.ok();
  }
};

Status ErrorOfAnswer(const std::string& address, long code) {
  const std::string text = fmt::format("cannot read {}: the server answers {}", address, code);
  switch (code) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(text);
    case 404:
    case 410:
      return absl::NotFoundError(text);
    case 408:
    case 425:
    case 429:
      return absl::UnavailableError(text);
    case 416:
      return FailedPrecondition("{} is shorter than expected", address);
    default:
      break;
  }
  if (code >= 500) return absl::UnavailableError(text);
  return absl::FailedPreconditionError(text);
}

// Libcurl's callbacks. They must not throw.
size_t OnHeader(char* data, size_t size, size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  const std::string_view line(data, size * count);
  constexpr std::string_view kName = "content-range:";
  if (line.starts_with("HTTP/")) self.content_range.clear();  // of a redirect's target
  if (line.size() > kName.size() && strncasecmp(data, kName.data(), kName.size()) == 0) {
    std::string_view value = line.substr(kName.size());
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with('\n') || value.ends_with('\r')) value.remove_suffix(1);
    self.content_range = value;
  }
  return line.size();
}

size_t OnBody(char* data, size_t size, size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  if (!self.Begin()) return 0;
  self.status = self.take(std::string_view(data, size * count));
  return self.status.ok() ? size * count : 0;
}

int OnProgress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& self = *static_cast<Transfer*>(transfer);
  if (!self.given_up || !self.given_up()) return 0;
  if (self.status.ok()) self.status = absl::CancelledError("given up");
  return 1;
}

Status ErrorOf(const Transfer& transfer, CURLcode code, const char* message) {
  const std::string text = fmt::format("cannot read {}: {}", transfer.address,
                                       message[0] != '\0' ? message : curl_easy_strerror(code));
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_TOO_MANY_REDIRECTS:
      return absl::FailedPreconditionError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// `range`: "0-99", or null for all.
Status Get(Transfer& transfer, const char* range) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, CurlDeleter> curl(ready == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) return absl::InternalError("libcurl does not start");
  if (!IsAddress(transfer.address)) {
    return InvalidArgument("expected an address such as https://host/folder, got '{}'",
                           transfer.address);
  }
  transfer.curl = curl.get();
  std::array<char, CURL_ERROR_SIZE> message{};
  const std::string agent = fmt::format("longhaul/{}", Version());
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, transfer.address.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  // Less than a byte a second for so long.
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, agent.c_str());
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, &OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  if (range != nullptr) set(CURLOPT_RANGE, range);
  if (code == CURLE_OK) code = curl_easy_perform(curl.get());
  LH_RETURN_IF_ERROR(transfer.status);
  if (code != CURLE_OK) return ErrorOf(transfer, code, message.data());
  transfer.Begin();  // an answer without a body
  return transfer.status;
}

Status CheckFound(const std::string& address, long code) {
  return code >= 200 && code < 300 ? absl::OkStatus() : ErrorOfAnswer(address, code);
}

}  // namespace

bool IsAddress(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

std::string AddressOf(std::string_view address, std::string_view file) {
  std::string whole(address);
  while (whole.ends_with('/')) whole.pop_back();
  whole += '/';
  for (const char letter : file) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0 || std::strchr("-._~/", letter)) {
      whole += letter;
    } else {
      whole += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return whole;
}

StatusOr<uint64_t> SizeOf(const std::string& address, const GivenUp& given_up) {
  // Not HEAD: addresses that are signed are signed for GET.
  uint64_t bytes = 0;
  Transfer transfer{.address = address,
                    .given_up = given_up,
                    .begin = [&](long code, const std::string& range) -> Status {
                      LH_RETURN_IF_ERROR(CheckFound(address, code));
                      // "bytes 0-0/300000"
                      const size_t slash = range.rfind('/');
                      if (code != 206 || slash == std::string::npos) {
                        return FailedPrecondition(
                            "{}: the server gives whole files alone, and ranges are needed; put "
                            "the files on one that gives ranges, or on this machine",
                            address);
                      }
                      const char* const end = range.data() + range.size();
                      const auto read = std::from_chars(range.data() + slash + 1, end, bytes);
                      if (read.ec == std::errc() && read.ptr == end) return absl::OkStatus();
                      return FailedPrecondition(
                          "{}: expected the file's size, the server says '{}'", address, range);
                    },
                    .take = [](std::string_view) { return absl::OkStatus(); }};
  LH_RETURN_IF_ERROR(Get(transfer, "0-0"));
  return bytes;
}

StatusOr<std::string> ReadAll(const std::string& address, uint64_t limit, const GivenUp& given_up) {
  std::string text;
  Transfer transfer{
      .address = address,
      .given_up = given_up,
      .begin = [&](long code, const std::string&) { return CheckFound(address, code); },
      .take = [&](std::string_view piece) -> Status {
        if (text.size() + piece.size() > limit) {
          return FailedPrecondition("{}: expected at most {} bytes", address, limit);
        }
        text += piece;
        return absl::OkStatus();
      }};
  LH_RETURN_IF_ERROR(Get(transfer, nullptr));
  return text;
}

StatusOr<std::vector<std::byte>> ReadRange(const std::string& address, uint64_t offset,
                                           uint64_t bytes, const GivenUp& given_up) {
  LH_CHECK(bytes > 0, "an empty range");
  std::vector<std::byte> all;
  all.reserve(bytes);
  Transfer transfer{.address = address,
                    .given_up = given_up,
                    .begin = [&](long code, const std::string& range) -> Status {
                      LH_RETURN_IF_ERROR(CheckFound(address, code));
                      if (code == 206 && range.starts_with(fmt::format("bytes {}-", offset))) {
                        return absl::OkStatus();
                      }
                      return FailedPrecondition(
                          "{}: expected bytes {} to {}, the server answers otherwise ({}, '{}')",
                          address, offset, offset + bytes - 1, code, range);
                    },
                    .take = [&](std::string_view piece) -> Status {
                      if (all.size() + piece.size() > bytes) {
                        return FailedPrecondition(
                            "{}: the server gives more than the {} bytes that it was asked for",
                            address, bytes);
                      }
                      const auto* data = reinterpret_cast<const std::byte*>(piece.data());
                      all.insert(all.end(), data, data + piece.size());
                      return absl::OkStatus();
                    }};
  const std::string range = fmt::format("{}-{}", offset, offset + bytes - 1);
  LH_RETURN_IF_ERROR(Get(transfer, range.c_str()));
  if (all.size() == bytes) return all;
  return FailedPrecondition("{}: expected {} bytes from {} on, got {}", address, bytes, offset,
                            all.size());
}

}  // namespace longhaul::http
