#include "coordinator/http/joining.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/address.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kTokenThere = "worker.token";

// In quotes where a shell would take it apart.
std::string Quoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,[]";
  if (text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The program with the flags that let it in.
std::string Connected(std::string_view program, const Joining& joining, const std::string& address,
                      std::string_view token_file) {
  std::string command = fmt::format("{} --coordinator {}", program, Quoted(address));
  if (joining.insecure) command += " --insecure";
  if (!token_file.empty()) command += fmt::format(" --token-file {}", Quoted(token_file));
  return command;
}

std::string WorkerCommand(const Joining& joining, const std::string& address,
                          std::string_view token_file) {
  return Connected("longhaul-worker", joining, address, token_file) + " --state-dir worker";
}

}  // namespace

std::string JoiningJson(const Joining& joining) {
  const std::string here = ReachedAt(joining.address, "127.0.0.1");
  nlohmann::ordered_json json = {{"here", WorkerCommand(joining, here, joining.token_file)},
                                 {"token", nullptr},
                                 {"there", nullptr}};
  const std::string command_line = Connected("longhaul", joining, here, joining.token_file);
  json["submit"] = command_line + " submit run.yaml";
  const std::string there = ReachedAt(joining.address, joining.host);
  const auto parsed = ParseHostPort(there);
  if (parsed.ok() && !IsLoopback(parsed->host)) {
    const bool token = !joining.token_file.empty();
    if (!joining.insecure) {
      json["token"] = fmt::format("{} token create --role worker --uses 10 --ttl 1d > {}",
                                  command_line, kTokenThere);
    } else if (token) {
      json["token"] = fmt::format("cp {} {}", Quoted(joining.token_file), kTokenThere);
    }
    json["there"] = WorkerCommand(joining, there, token ? kTokenThere : "");
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace longhaul::coordinator
