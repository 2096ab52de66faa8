// Who is signed in, for what depends on rights. The api decides; the page only leaves out what it would refuse.
import { createContext, useContext } from "react";
import type { Me } from "../api/types";

export const MeContext = createContext<Me | null>(null);

export function useMe(): Me {
  const me = useContext(MeContext);
  if (me === null) throw new Error("MeContext is missing above");
  return me;
}
