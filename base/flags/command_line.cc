#include "base/flags/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/nearest.h"
#include "base/version.h"
#include "base/yaml/yaml_reader.h"

namespace longhaul {
namespace {

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  // Commands without a group are not for users.
  const auto is_shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* command : app.get_subcommands(is_shown)) {
    names.push_back(command->get_name());
  }
  return names;
}

// Nothing on a command line may move the cursor of who reads about it.
std::string Shown(std::string text) {
  constexpr size_t kLongest = 80;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string DescribeUsageError(const CLI::App& app, const CLI::Error& error) {
  // By its code: the library gives some errors other names than their types'.
  const auto is = [&error](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  // Its lines say themselves which file they are about.
  if (is(CLI::ExitCodes::ConfigError)) return fmt::format("{}\n", error.what());

  // The command that was reached, by name, and what it and its parents take.
  const CLI::App* command = &app;
  std::string path = app.get_name();
  std::vector<std::string> options;
  while (true) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
    const auto reached = command->get_subcommands();
    if (reached.empty()) break;
    command = reached.front();
    path += " " + command->get_name();
  }
  const std::vector<std::string> commands = CommandsOf(*command);
  const bool missing = is(CLI::ExitCodes::RequiredError);
  // A word that nobody takes is named before one that is missing, of which it may be the cause.
  const std::vector<std::string> left = missing || is(CLI::ExitCodes::ExtrasError)
                                            ? app.remaining(/*recurse=*/true)
                                            : std::vector<std::string>();
  std::string what = error.what();
  if (!left.empty() && left[0].starts_with('-')) {
    const std::string name = left[0].substr(0, left[0].find('='));
    what = fmt::format("unknown option '{}'{}", Shown(name), DidYouMean(name, options));
  } else if (!left.empty() && !commands.empty()) {
    what = fmt::format("unknown command '{}'{}", Shown(left[0]), DidYouMean(left[0], commands));
  } else if (!left.empty()) {
    what = fmt::format("'{}' is one argument too many", Shown(left[0]));
  } else if (missing && !commands.empty()) {
    what = fmt::format("expected a command: {}", config::ListOf(commands));
  }
  return fmt::format("{}: {}\nRun {} --help for more.\n", path, what, path);
}

void SetUpCommandLine(CLI::App& app) {
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", fmt::format("{} {}", app.get_name(), Version()),
                       "Print the version and exit");
  app.failure_message([](const CLI::App* program, const CLI::Error& error) {
    return DescribeUsageError(*program, error);
  });
}

std::string ProblemOfAddresses(
    std::initializer_list<std::pair<std::string_view, std::string_view>> flags) {
  for (const auto& [flag, text] : flags) {
    const StatusOr<HostPort> address = ParseHostPort(text);
    if (!text.empty() && !address.ok()) {
      return fmt::format("{}: {}", flag, Message(address.status()));
    }
  }
  return "";
}

CLI::Validator WholeNumber() {
  return {[](const std::string& text) -> std::string {
            uint64_t number = 0;
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), number);
            if (error == std::errc() && end == text.data() + text.size()) return "";
            return fmt::format("expected a whole number, got '{}'", Shown(text));
          },
          ""};
}

}  // namespace longhaul
