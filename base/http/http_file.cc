#include "base/http/http_file.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/http/client.h"
#include "base/printable.h"

namespace longhaul::http {
namespace {

// For addresses that users write.
const Client& TheClient() {
  static const Client client({.hosts = HostRules::Trusting()});
  return client;
}

// `range`: "0-99", or empty for all.
Status Get(const std::string& address, const std::string& range, const GivenUp& given_up,
           const Receiver& receiver) {
  Request request{.url = address};
  if (!range.empty()) request.headers.push_back("Range: bytes=" + range);
  const Call call{.given_up = given_up};
  const StatusOr<Answer> answer = TheClient().Send(request, call, &receiver);
  LH_RETURN_IF_ERROR(answer.status());
  if (answer->ok()) return absl::OkStatus();
  if (answer->code == 416) return FailedPrecondition("{} is shorter than expected", address);
  return ErrorOfAnswer("cannot read " + ShownUrl(address), *answer);
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
  const Receiver receiver{
      .begin = [&](const Answer& answer) -> Status {
        // "bytes 0-0/300000"
        const std::string& range = answer.Header("content-range");
        const size_t slash = range.rfind('/');
        if (answer.code != 206 || slash == std::string::npos) {
          return FailedPrecondition(
              "{}: the server gives whole files alone, and ranges are needed; put the files on one "
              "that gives ranges, or on this machine",
              ShownUrl(address));
        }
        const char* const end = range.data() + range.size();
        const auto read = std::from_chars(range.data() + slash + 1, end, bytes);
        if (read.ec == std::errc() && read.ptr == end) return absl::OkStatus();
        return FailedPrecondition("{}: expected the file's size, the server says '{}'",
                                  ShownUrl(address), Printable(range, 100));
      },
      .take = [](std::string_view) { return absl::OkStatus(); }};
  LH_RETURN_IF_ERROR(Get(address, "0-0", given_up, receiver));
  return bytes;
}

StatusOr<std::string> ReadAll(const std::string& address, uint64_t limit, const GivenUp& given_up) {
  std::string text;
  const Receiver receiver{.begin = {}, .take = [&](std::string_view piece) -> Status {
                            if (text.size() + piece.size() > limit) {
                              return FailedPrecondition("{}: expected at most {} bytes",
                                                        ShownUrl(address), limit);
                            }
                            text += piece;
                            return absl::OkStatus();
                          }};
  LH_RETURN_IF_ERROR(Get(address, "", given_up, receiver));
  return text;
}

StatusOr<std::vector<std::byte>> ReadRange(const std::string& address, uint64_t offset,
                                           uint64_t bytes, const GivenUp& given_up) {
  LH_CHECK(bytes > 0, "an empty range");
  std::vector<std::byte> all;
  all.reserve(bytes);
  const Receiver receiver{
      .begin = [&](const Answer& answer) -> Status {
        const std::string& range = answer.Header("content-range");
        if (answer.code == 206 && range.starts_with(fmt::format("bytes {}-", offset))) {
          return absl::OkStatus();
        }
        return FailedPrecondition(
            "{}: expected bytes {} to {}, the server answers otherwise ({}, '{}')",
            ShownUrl(address), offset, offset + bytes - 1, answer.code, Printable(range, 100));
      },
      .take = [&](std::string_view piece) -> Status {
        if (all.size() + piece.size() > bytes) {
          return FailedPrecondition(
              "{}: the server gives more than the {} bytes that it was asked for",
              ShownUrl(address), bytes);
        }
        const auto* data = reinterpret_cast<const std::byte*>(piece.data());
        all.insert(all.end(), data, data + piece.size());
        return absl::OkStatus();
      }};
  LH_RETURN_IF_ERROR(
      Get(address, fmt::format("{}-{}", offset, offset + bytes - 1), given_up, receiver));
  if (all.size() == bytes) return all;
  return FailedPrecondition("{}: expected {} bytes from {} on, got {}", ShownUrl(address), bytes,
                            offset, all.size());
}

}  // namespace longhaul::http
