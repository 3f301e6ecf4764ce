#include "base/remote/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <pugixml.hpp>

#include "base/hash.h"

namespace longhaul::remote {
namespace {

using Json = nlohmann::json;

// A page of S3 has at most 1000 keys; some servers allow more.
constexpr size_t kMostOfPage = 100'000;
constexpr size_t kMostOfRepository = 1'000'000;
constexpr size_t kLongestName = 4096;
constexpr size_t kLongestToken = 16 << 10;

// Comments, declarations and entities of the document's own are not kept, so nothing grows.
bool Load(pugi::xml_document& document, std::string_view xml) {
  return static_cast<bool>(
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8));
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

bool IsPath(std::string_view path) {
  return !path.empty() && path.size() <= kLongestName && std::ranges::none_of(path, [](char byte) {
    return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
  });
}

Status Unexpected(std::string_view what) {
  return DataLoss("expected {} from the server, got something else", what);
}

// Some hubs give numbers as floating point; none gives a negative one.
std::optional<uint64_t> SizeIn(const Json& object) {
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::string TextIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

bool IsCommit(std::string_view text) {
  return text.size() >= 40 && text.size() <= 64 && std::ranges::all_of(text, [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
         });
}

// The member `name` of an object, if that is an object, too.
const Json* ObjectIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_object() ? nullptr : &*found;
}

// The first element of the list `name`, if that is an object.
const Json* FirstIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->empty()) return nullptr;
  return found->front().is_object() ? &found->front() : nullptr;
}

// Numbers of parts, "00001" and on, with their addresses, and "chunk_size"; or headers.
Status ReadUploadHeader(const Json& header, uint64_t bytes, LargeUpload& upload) {
  const std::string part_bytes = TextIn(header, "chunk_size");
  std::vector<std::pair<uint64_t, std::string>> parts;
  for (const auto& [name, value] : header.items()) {
    if (!value.is_string()) continue;
    if (part_bytes.empty()) {
      upload.headers.push_back(fmt::format("{}: {}", name, value.get<std::string>()));
    } else if (const auto number = NumberOf(name)) {
      parts.emplace_back(*number, value.get<std::string>());
    }
  }
  if (part_bytes.empty()) return absl::OkStatus();
  upload.part_bytes = NumberOf(part_bytes).value_or(0);
  std::ranges::sort(parts);
  for (auto& [number, url] : parts) {
    upload.part_urls.push_back(std::move(url));
    if (number != upload.part_urls.size()) return Unexpected("addresses of parts from 1 on");
  }
  if (upload.part_bytes == 0 || bytes == 0 ||
      (bytes - 1) / upload.part_bytes + 1 != upload.part_urls.size()) {
    return Unexpected("an address for each part of a file");
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<BucketPage> ParseBucketPage(std::string_view xml) {
  pugi::xml_document document;
  if (!Load(document, xml)) return Unexpected("a list of S3 in XML");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) return Unexpected("a document ListBucketResult");
  BucketPage page;
  for (const pugi::xml_node& contents : root.children("Contents")) {
    Entry entry{.path = contents.child_value("Key")};
    const auto bytes = NumberOf(contents.child_value("Size"));
    if (!IsPath(entry.path) || !bytes) {
      return Unexpected("keys without control characters, and sizes");
    }
    entry.bytes = *bytes;
    page.entries.push_back(std::move(entry));
    if (page.entries.size() > kMostOfPage) return Unexpected("at most 100000 keys in one answer");
  }
  const std::string_view truncated = root.child_value("IsTruncated");
  if (truncated != "true" && truncated != "false") return Unexpected("IsTruncated: true or false");
  if (truncated == "false") return page;
  page.next = root.child_value("NextContinuationToken");
  if (page.next.empty() || page.next.size() > kLongestToken) {
    return Unexpected("NextContinuationToken in a list that goes on");
  }
  return page;
}

std::string ErrorCodeOf(std::string_view xml) {
  const std::string code = ElementOf(xml, "Error", "Code");
  const bool good = std::ranges::all_of(code, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9');
  });
  return good && code.size() <= 100 ? code : "";
}

std::string ElementOf(std::string_view xml, const char* root, const char* name) {
  pugi::xml_document document;
  if (!Load(document, xml)) return "";
  return document.child(root).child_value(name);
}

StatusOr<HubRevision> ParseHubRevision(std::string_view json) {
  const Json document = Json::parse(json, nullptr, false);
  if (!document.is_object()) return Unexpected("a repository of a hub in JSON");
  HubRevision revision{.commit = TextIn(document, "sha")};
  if (!IsCommit(revision.commit)) return Unexpected("the commit of a repository as \"sha\"");
  const auto files = document.find("siblings");
  if (files == document.end() || !files->is_array() || files->size() > kMostOfRepository) {
    return Unexpected("the files of a repository as \"siblings\"");
  }
  for (const Json& file : *files) {
    if (!file.is_object()) return Unexpected("a file of a repository");
    Entry entry{.path = TextIn(file, "rfilename")};
    const auto bytes = SizeIn(file);
    if (!IsPath(entry.path) || !bytes) return Unexpected("the name and the size of each file");
    entry.bytes = *bytes;
    if (const auto large = file.find("lfs"); large != file.end() && large->is_object()) {
      entry.sha256 = TextIn(*large, "sha256");
      if (!IsSha256Hex(entry.sha256)) return Unexpected("the SHA-256 of each large file");
    }
    revision.entries.push_back(std::move(entry));
  }
  return revision;
}

StatusOr<std::map<std::string, bool>> ParseUploadModes(std::string_view json) {
  const Json document = Json::parse(json, nullptr, false);
  const Json* const first = document.is_object() ? FirstIn(document, "files") : nullptr;
  if (first == nullptr || document["files"].size() > kMostOfRepository) {
    return Unexpected("how files are to come as \"files\"");
  }
  std::map<std::string, bool> modes;
  for (const Json& file : document["files"]) {
    const std::string path = file.is_object() ? TextIn(file, "path") : "";
    const std::string mode = file.is_object() ? TextIn(file, "uploadMode") : "";
    if (!IsPath(path) || (mode != "lfs" && mode != "regular")) {
      return Unexpected("a \"path\" and an \"uploadMode\" of lfs or regular for each file");
    }
    modes[path] = mode == "lfs";
  }
  return modes;
}

StatusOr<LargeUpload> ParseLargeUpload(std::string_view json, uint64_t bytes) {
  const Json document = Json::parse(json, nullptr, false);
  const Json* const object = document.is_object() ? FirstIn(document, "objects") : nullptr;
  if (object == nullptr || object->contains("error")) return Unexpected("a place for a large file");
  LargeUpload upload;
  const Json* const actions = ObjectIn(*object, "actions");
  if (actions == nullptr) return upload;
  if (const Json* const action = ObjectIn(*actions, "upload")) {
    upload.url = TextIn(*action, "href");
    if (upload.url.empty()) return Unexpected("the address for a large file");
    if (const Json* const header = ObjectIn(*action, "header")) {
      LH_RETURN_IF_ERROR(ReadUploadHeader(*header, bytes, upload));
    }
  }
  if (const Json* const action = ObjectIn(*actions, "verify")) {
    upload.verify_url = TextIn(*action, "href");
    if (const Json* const header = ObjectIn(*action, "header")) {
      for (const auto& [name, value] : header->items()) {
        if (!value.is_string()) continue;
        upload.verify_headers.push_back(fmt::format("{}: {}", name, value.get<std::string>()));
      }
    }
  }
  return upload;
}

StatusOr<std::string> ParseHubCommit(std::string_view json) {
  const Json document = Json::parse(json, nullptr, false);
  std::string commit = document.is_object() ? TextIn(document, "commitOid") : "";
  if (!IsCommit(commit)) return Unexpected("a commit as \"commitOid\"");
  return commit;
}

}  // namespace longhaul::remote
