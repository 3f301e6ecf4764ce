#include "base/remote/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/http/host_rules.h"
#include "base/printable.h"

namespace longhaul::remote {
namespace {

constexpr std::string_view kForms =
    "hf://ORG/NAME[@REVISION]/PATH, hf://datasets/ORG/NAME[@REVISION]/PATH, s3://BUCKET/KEY, "
    "gs://BUCKET/KEY or https://HOST/PATH";
// The longest key of S3 is 1024 bytes.
constexpr size_t kLongestPath = 1024, kLongestHubName = 96, kLongestRevision = 200;

std::string Shown(std::string_view text) {
  return Printable(http::ShownUrl(text), 200);
}

Status Wrong(std::string_view text, std::string_view expected) {
  return InvalidArgument("expected {}, got '{}'", expected, Shown(text));
}

bool IsLetterOrDigit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

// Empty: the name is good.
std::string_view FaultOfHubName(std::string_view name) {
  if (name.empty() || name.size() > kLongestHubName) return "an ORG and a NAME of 1 to 96 bytes";
  const bool good = std::ranges::all_of(name, [](char letter) {
    return IsLetterOrDigit(letter) || letter == '-' || letter == '_' || letter == '.';
  });
  if (!good || name.front() == '.' || name.front() == '-' || name.find("..") != name.npos) {
    return "an ORG and a NAME of letters, digits, '-', '_' and '.'";
  }
  return {};
}

std::string_view FaultOfBucket(std::string_view bucket) {
  const bool good = std::ranges::all_of(bucket, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '-' ||
           letter == '.' || letter == '_';
  });
  if (!good || bucket.size() < 3 || bucket.size() > 222 || !IsLetterOrDigit(bucket.front()) ||
      !IsLetterOrDigit(bucket.back()) || bucket.find("..") != bucket.npos) {
    return "a bucket of 3 to 222 small letters, digits, '-', '_' and '.'";
  }
  return {};
}

// What is refused here is legal in S3, but no two programs agree on how such keys are escaped.
std::string_view FaultOfPath(std::string_view path) {
  if (path.size() > kLongestPath) return "a path of at most 1024 bytes";
  for (const char letter : path) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      return "a path without control characters";
    }
  }
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == "..") {
      return "a path without empty names, '.' and '..'";
    }
    begin = end + 1;
  }
  return {};
}

std::string_view Next(std::string_view& rest) {
  const size_t end = std::min(rest.find('/'), rest.size());
  const std::string_view name = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return name;
}

std::optional<int> HexDigit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return std::nullopt;
}

// Empty: the escapes are broken.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return "";
    const auto high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (!high || !low) return "";
    plain += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return plain;
}

bool IsRevision(std::string_view text) {
  const bool good = std::ranges::all_of(text, [](char letter) {
    return IsLetterOrDigit(letter) || letter == '-' || letter == '_' || letter == '.' ||
           letter == '/' || letter == '+';
  });
  return good && !text.empty() && text.size() <= kLongestRevision && text.front() != '/' &&
         text.front() != '.' && text.back() != '/' && text.find("..") == text.npos &&
         text.find("//") == text.npos;
}

StatusOr<Address> ParseHub(std::string_view text, std::string_view rest) {
  Address address{.kind = Kind::kHubModel};
  if (rest.starts_with("datasets/")) {
    address.kind = Kind::kHubDataset;
    rest.remove_prefix(std::string_view("datasets/").size());
  }
  const std::string_view organisation = Next(rest);
  std::string_view name = Next(rest);
  address.revision = "main";
  if (const size_t at = name.find('@'); at != name.npos) {
    address.revision = Unescaped(name.substr(at + 1));
    name = name.substr(0, at);
    if (!IsRevision(address.revision)) {
      return Wrong(text, "a branch, a tag or a commit behind '@', with '/' written as %2F");
    }
  }
  for (const std::string_view part : {organisation, name}) {
    if (const auto fault = FaultOfHubName(part); !fault.empty()) {
      return Wrong(text, fmt::format("hf://ORG/NAME[@REVISION]/PATH with {}", fault));
    }
  }
  address.place = fmt::format("{}/{}", organisation, name);
  address.path = rest;
  return address;
}

StatusOr<Address> ParseBucket(Kind kind, std::string_view text, std::string_view rest) {
  Address address{.kind = kind};
  address.place = Next(rest);
  address.path = rest;
  if (const auto fault = FaultOfBucket(address.place); !fault.empty()) {
    return Wrong(text,
                 fmt::format("{}://BUCKET/KEY with {}", kind == Kind::kS3 ? "s3" : "gs", fault));
  }
  return address;
}

StatusOr<Address> ParseWeb(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(text));
  for (const char letter : url.text) {
    if (static_cast<unsigned char>(letter) <= 0x20 || letter == 0x7f) {
      return Wrong(text, "a web address without spaces and control characters");
    }
  }
  const size_t path = std::min(url.text.find('/', url.scheme.size() + 3), url.text.size());
  Address address{.kind = Kind::kWeb, .place = url.text.substr(0, path)};
  address.path = url.text.substr(std::min(path + 1, url.text.size()));
  return address;
}

}  // namespace

StatusOr<Address> ParseAddress(std::string_view text) {
  if (text.starts_with("https://") || text.starts_with("http://")) return ParseWeb(text);
  const size_t scheme = text.find("://");
  const std::string_view rest = scheme == text.npos ? std::string_view() : text.substr(scheme + 3);
  StatusOr<Address> address = Wrong(text, kForms);
  if (text.starts_with("hf://")) {
    address = ParseHub(text, rest);
  } else if (text.starts_with("s3://")) {
    address = ParseBucket(Kind::kS3, text, rest);
  } else if (text.starts_with("gs://")) {
    address = ParseBucket(Kind::kGoogle, text, rest);
  }
  if (!address.ok()) return address;
  if (const auto fault = FaultOfPath(address->path); !fault.empty()) return Wrong(text, fault);
  return address;
}

std::string ToString(const Address& address) {
  switch (address.kind) {
    case Kind::kHubModel:
    case Kind::kHubDataset: {
      const bool says_revision = address.revision != "main";
      return fmt::format("hf://{}{}{}{}/{}", address.kind == Kind::kHubDataset ? "datasets/" : "",
                         address.place, says_revision ? "@" : "",
                         says_revision ? Escaped(address.revision, false) : "", address.path);
    }
    case Kind::kS3:
      return fmt::format("s3://{}/{}", address.place, address.path);
    case Kind::kGoogle:
      return fmt::format("gs://{}/{}", address.place, address.path);
    case Kind::kWeb:
      break;
  }
  return fmt::format("{}/{}", address.place, address.path);
}

std::string ShownAddress(const Address& address) {
  const std::string text = ToString(address);
  return Printable(address.kind == Kind::kWeb ? http::ShownUrl(text) : text);
}

bool HasScheme(std::string_view text) {
  for (const std::string_view scheme : {"hf://", "s3://", "gs://", "https://", "http://"}) {
    if (text.starts_with(scheme)) return true;
  }
  return false;
}

StatusOr<Address> Inside(const Address& folder, std::string_view path) {
  Address address = folder;
  if (path.empty() || !FaultOfPath(path).empty()) {
    return Wrong(path, "the path of a file inside a folder");
  }
  if (address.kind == Kind::kWeb && address.path.find('?') != std::string::npos) {
    return Wrong(ShownAddress(folder), "the address of a folder, without a query");
  }
  if (!address.IsFolder()) address.path += '/';
  address.path += address.kind == Kind::kWeb ? Escaped(path, true) : std::string(path);
  return address;
}

std::string Escaped(std::string_view text, bool keeps_slashes) {
  std::string escaped;
  for (const char letter : text) {
    if (IsLetterOrDigit(letter) || letter == '-' || letter == '.' || letter == '_' ||
        letter == '~' || (keeps_slashes && letter == '/')) {
      escaped += letter;
    } else {
      escaped += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return escaped;
}

}  // namespace longhaul::remote
