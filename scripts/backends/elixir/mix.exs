defmodule CpLoop.MixProject do
  @moduledoc "Needs jiffy of the system and no package: `mix test` and `mix escript.build` work without a network."

  use Mix.Project

  def project do
    [
      app: :cp_loop,
      version: "0.1.0",
      elixir: "~> 1.14",
      elixirc_paths: ["."],
      escript: [main_module: CpLoop.Main, name: "cp-loop", emu_args: "-noinput +Bi +fnu -kernel logger_level none"]
    ]
  end

  # jiffy has native code, which no escript can contain, so it is loaded from the system when the program runs.
  def application, do: []
end
