#include "base/remote/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "base/file.h"
#include "base/http/host_rules.h"

namespace longhaul::remote {
namespace {

constexpr uint64_t kLargestFile = 1 << 20;

using Profile = std::map<std::string, std::string, std::less<>>;

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin));
}

// Returns the first variable that is set and not empty, or "".
std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = environment(name); value && !value->empty()) return *value;
  }
  return "";
}

std::string HomeOf(const Environment& environment) {
  return FirstOf(environment, {"HOME"});
}

// A file that is not there is empty.
StatusOr<std::string> ReadIfThere(const std::string& path) {
  StatusOr<std::string> text = ReadFile(path, kLargestFile);
  if (absl::IsNotFound(text.status())) return std::string();
  return text;
}

// The section "[name]" of a file of the AWS tools, or nullopt.
StatusOr<std::optional<Profile>> ReadProfile(const std::string& path, const std::string& name) {
  LH_ASSIGN_OR_RETURN(const std::string text, ReadIfThere(path));
  std::optional<Profile> profile;
  bool is_inside = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = Trim(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (line.starts_with('#') || line.starts_with(';')) continue;
    if (line.starts_with('[')) {
      is_inside = line == "[" + name + "]";
      if (is_inside && !profile) profile.emplace();
      continue;
    }
    const size_t equals = line.find('=');
    if (!is_inside || equals == std::string::npos) continue;
    (*profile)[Trim(line.substr(0, equals))] = Trim(line.substr(equals + 1));
  }
  return profile;
}

std::string ValueOf(const Profile& profile, std::string_view name) {
  const auto found = profile.find(name);
  return found == profile.end() ? "" : found->second;
}

StatusOr<Secret> FindHubToken(const Environment& environment) {
  if (const std::string token = FirstOf(environment, {"HF_TOKEN"}); !token.empty()) {
    return Secret(Trim(token));
  }
  std::string path = FirstOf(environment, {"HF_TOKEN_PATH"});
  if (path.empty()) {
    std::string folder = FirstOf(environment, {"HF_HOME"});
    const std::string home = HomeOf(environment);
    if (folder.empty() && home.empty()) return Secret();
    if (folder.empty()) folder = home + "/.cache/huggingface";
    path = folder + "/token";
  }
  LH_ASSIGN_OR_RETURN(const std::string text, ReadIfThere(path));
  return Secret(Trim(text));
}

Status CheckPair(const Keys& keys, std::string_view access_key, std::string_view secret_key,
                 std::string_view place) {
  if (keys.access_key.empty() == keys.secret_key.empty()) return absl::OkStatus();
  return FailedPrecondition("{}: expected {} together with {}, got only {}", place, access_key,
                            secret_key, keys.secret_key.empty() ? access_key : secret_key);
}

StatusOr<Keys> FindS3Keys(const Environment& environment) {
  Keys keys{.access_key = FirstOf(environment, {"AWS_ACCESS_KEY_ID"}),
            .secret_key = Secret(FirstOf(environment, {"AWS_SECRET_ACCESS_KEY"})),
            .session_token = Secret(FirstOf(environment, {"AWS_SESSION_TOKEN"}))};
  LH_RETURN_IF_ERROR(
      CheckPair(keys, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "the environment"));
  if (!keys.empty()) return keys;
  const std::string asked = FirstOf(environment, {"AWS_PROFILE"});
  std::string path = FirstOf(environment, {"AWS_SHARED_CREDENTIALS_FILE"});
  const std::string home = HomeOf(environment);
  if (path.empty() && !home.empty()) path = home + "/.aws/credentials";
  if (path.empty()) return Keys();
  const std::string name = asked.empty() ? "default" : asked;
  LH_ASSIGN_OR_RETURN(const auto profile, ReadProfile(path, name));
  if (!profile) {
    if (asked.empty()) return Keys();
    return FailedPrecondition(
        "AWS_PROFILE is {}, but {} has no section [{}]; add the section, or unset AWS_PROFILE",
        asked, path, asked);
  }
  keys = {.access_key = ValueOf(*profile, "aws_access_key_id"),
          .secret_key = Secret(ValueOf(*profile, "aws_secret_access_key")),
          .session_token = Secret(ValueOf(*profile, "aws_session_token"))};
  LH_RETURN_IF_ERROR(CheckPair(keys, "aws_access_key_id", "aws_secret_access_key",
                               fmt::format("{}, section [{}]", path, name)));
  return keys;
}

StatusOr<std::string> FindRegion(const Environment& environment) {
  std::string region = FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (!region.empty()) return region;
  std::string path = FirstOf(environment, {"AWS_CONFIG_FILE"});
  const std::string home = HomeOf(environment);
  if (path.empty() && !home.empty()) path = home + "/.aws/config";
  if (!path.empty()) {
    const std::string profile = FirstOf(environment, {"AWS_PROFILE"});
    const std::string section =
        profile.empty() || profile == "default" ? "default" : "profile " + profile;
    LH_ASSIGN_OR_RETURN(const auto found, ReadProfile(path, section));
    if (found) region = ValueOf(*found, "region");
  }
  return region.empty() ? Endpoints().s3_region : region;
}

// Without a '/' at the end. Empty: not set.
StatusOr<std::string> FindEndpoint(const Environment& environment,
                                   std::initializer_list<const char*> names) {
  std::string endpoint = FirstOf(environment, names);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (endpoint.empty()) return endpoint;
  const StatusOr<http::Url> url = http::ParseUrl(endpoint);
  if (!url.ok() || url->text.find_first_of("/?", url->scheme.size() + 3) < url->text.size() - 1) {
    return InvalidArgument("{}: expected an address such as https://host:port without a path",
                           fmt::join(names, ", "));
  }
  return endpoint;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Environment WithoutCredentials(Environment environment) {
  return [environment =
              std::move(environment)](const std::string& name) -> std::optional<std::string> {
    constexpr std::string_view kShown[] = {
        "HF_ENDPOINT",        "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE",       "SSL_CERT_FILE"};
    if (std::ranges::find(kShown, name) == std::end(kShown)) return std::nullopt;
    return environment(name);
  };
}

StatusOr<Settings> FindSettings(const Environment& environment) {
  Settings settings;
  LH_ASSIGN_OR_RETURN(settings.credentials.hub_token, FindHubToken(environment));
  LH_ASSIGN_OR_RETURN(settings.credentials.s3, FindS3Keys(environment));
  Keys& google = settings.credentials.google;
  google.access_key = FirstOf(environment, {"GS_ACCESS_KEY_ID"});
  google.secret_key = Secret(FirstOf(environment, {"GS_SECRET_ACCESS_KEY"}));
  LH_RETURN_IF_ERROR(
      CheckPair(google, "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY", "the environment"));
  Endpoints& endpoints = settings.endpoints;
  LH_ASSIGN_OR_RETURN(const std::string hub, FindEndpoint(environment, {"HF_ENDPOINT"}));
  if (!hub.empty()) endpoints.hub = hub;
  LH_ASSIGN_OR_RETURN(endpoints.s3,
                      FindEndpoint(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}));
  LH_ASSIGN_OR_RETURN(endpoints.s3_region, FindRegion(environment));
  endpoints.ca_file = FirstOf(environment, {"AWS_CA_BUNDLE", "SSL_CERT_FILE"});
  return settings;
}

http::HostRules RulesFor(const Endpoints& endpoints) {
  // Not all of Amazon and Google: both give names below their domains to servers of customers.
  http::HostRules rules{.hosts = {"huggingface.co", "*.huggingface.co", "*.hf.co",
                                  "s3.amazonaws.com", "*.s3.amazonaws.com", "s3.*.amazonaws.com",
                                  "*.s3.*.amazonaws.com", "*.s3-accelerate.amazonaws.com",
                                  "storage.googleapis.com", "*.storage.googleapis.com"}};
  for (const std::string& endpoint : {endpoints.hub, endpoints.s3, endpoints.google}) {
    const StatusOr<http::Url> url = http::ParseUrl(endpoint);
    if (!url.ok() || (url->scheme == "https" && http::MatchesHost(*url, rules.hosts))) continue;
    rules.local_hosts.push_back(fmt::format("{}:{}", url->host, url->port));
  }
  return rules;
}

}  // namespace longhaul::remote
