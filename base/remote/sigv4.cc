#include "base/remote/sigv4.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/hash.h"
#include "base/remote/address.h"

namespace longhaul::remote {

const char* const kEmptySha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";

std::string Hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

std::string TimeOf(absl::Time now) {
  return absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone());
}

std::string ScopeOf(std::string_view time, const SignedScope& scope) {
  return fmt::format("{}/{}/{}/aws4_request", time.substr(0, 8), scope.region, scope.service);
}

// Spaces around a value do not count, and several count as one.
std::string Normal(std::string_view value) {
  std::string normal;
  for (const char letter : value) {
    if (letter == ' ' && (normal.empty() || normal.back() == ' ')) continue;
    normal += letter;
  }
  while (normal.ends_with(' ')) normal.pop_back();
  return normal;
}

// The headers that are signed, by name.
Pairs SortedHeaders(const ToSign& request) {
  Pairs headers = request.headers;
  headers.emplace_back("host", request.host);
  std::ranges::stable_sort(headers, {}, &Pairs::value_type::first);
  Pairs joined;
  for (const auto& [name, value] : headers) {
    if (!joined.empty() && joined.back().first == name) {
      joined.back().second += "," + Normal(value);
    } else {
      joined.emplace_back(name, Normal(value));
    }
  }
  return joined;
}

std::string NamesOf(const Pairs& headers) {
  std::string names;
  for (const auto& [name, value] : headers) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string Signature(const ToSign& request, const Pairs& headers, const std::string& query,
                      const Keys& keys, const SignedScope& scope, const std::string& time) {
  std::string lines;
  for (const auto& [name, value] : headers) lines += fmt::format("{}:{}\n", name, value);
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            query, lines, NamesOf(headers), request.payload_sha256);
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, ScopeOf(time, scope), Sha256Hex(canonical));
  std::string key = HmacSha256("AWS4" + keys.secret_key.Reveal(), time.substr(0, 8));
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request")}) {
    key = HmacSha256(key, part);
  }
  return Hex(HmacSha256(key, text));
}

}  // namespace

std::string CanonicalQuery(Pairs query) {
  for (auto& [name, value] : query) {
    name = Escaped(name, false);
    value = Escaped(value, false);
  }
  std::ranges::sort(query);
  std::string text;
  for (const auto& [name, value] : query) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  }
  return text;
}

Pairs SignHeaders(const ToSign& request, const Keys& keys, const SignedScope& scope,
                  absl::Time now) {
  const std::string time = TimeOf(now);
  ToSign whole = request;
  whole.headers.emplace_back("x-amz-date", time);
  if (scope.service == "s3") {
    whole.headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
  }
  if (!keys.session_token.empty()) {
    whole.headers.emplace_back("x-amz-security-token", keys.session_token.Reveal());
  }
  const Pairs headers = SortedHeaders(whole);
  const std::string signature =
      Signature(whole, headers, CanonicalQuery(request.query), keys, scope, time);
  whole.headers.emplace_back(
      "authorization",
      fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                  keys.access_key, ScopeOf(time, scope), NamesOf(headers), signature));
  return whole.headers;
}

std::string SignQuery(const ToSign& request, const Keys& keys, const SignedScope& scope,
                      absl::Time now, absl::Duration validity) {
  const std::string time = TimeOf(now);
  ToSign whole = request;
  whole.payload_sha256 = "UNSIGNED-PAYLOAD";
  const Pairs headers = SortedHeaders(whole);
  whole.query.emplace_back("X-Amz-Algorithm", kAlgorithm);
  whole.query.emplace_back("X-Amz-Credential",
                           fmt::format("{}/{}", keys.access_key, ScopeOf(time, scope)));
  whole.query.emplace_back("X-Amz-Date", time);
  whole.query.emplace_back("X-Amz-Expires", fmt::to_string(absl::ToInt64Seconds(validity)));
  whole.query.emplace_back("X-Amz-SignedHeaders", NamesOf(headers));
  if (!keys.session_token.empty()) {
    whole.query.emplace_back("X-Amz-Security-Token", keys.session_token.Reveal());
  }
  const std::string query = CanonicalQuery(whole.query);
  return fmt::format("{}&X-Amz-Signature={}", query,
                     Signature(whole, headers, query, keys, scope, time));
}

}  // namespace longhaul::remote
