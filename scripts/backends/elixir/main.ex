defmodule CpLoop.Main do
  @moduledoc "The program: its arguments are the command that asks the model, or options of cp-llm."

  def main(arguments), do: arguments |> command() |> CpLoop.Desk.run() |> System.halt()

  defp command([program | _] = command) when binary_part(program, 0, 1) != "-", do: command
  defp command(options), do: [System.find_executable("cp-llm") || "cp-llm", "--closed" | options]
end
